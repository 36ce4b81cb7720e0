// Put the parts of the page together.
const tables = [...document.querySelectorAll(".values")].map((section) => new ValueTable(section));
for (const figure of document.querySelectorAll(".sizes")) new SizeMap(figure, tables[0]);
for (const figure of document.querySelectorAll(".curves")) new Curves(figure, tables[0]);
const follow = () => {
  let name = location.hash.slice(1);
  try {
    name = decodeURIComponent(name);
  } catch {
    /* a name with a percent sign */
  }
  if (name) tables.some((table) => table.reveal(name, true));
};
addEventListener("hashchange", follow);
follow();
