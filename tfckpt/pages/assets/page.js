// The table: search it, sort it, and go to the row of a link. Of thousands of rows only those that
// are shown are in the document, a hundred or two at a time.
const STEP = 150;
const find = (selector) => document.querySelector(selector);
const all = (selector, from = document) => [...from.querySelectorAll(selector)];
const body = find("tbody");
const [search, select, output, more] = [".tools input", ".tools select", ".tools output", ".more"].map(find);
const heads = all("thead th");
const rows = all("tr[id]").map((tr, index) => ({ tr, index, text: tr.textContent.toLowerCase() }));
const natural = new Intl.Collator("en", { numeric: true });
const isNumber = (column) => heads[column].className === "number";
const shownAs = (count) => count.toLocaleString("en");
let sorting = null,
  limit = STEP,
  linked = null;

const key = ({ tr }, column) => {
  const { dataset, textContent } = tr.cells[column];
  if (!isNumber(column)) return textContent;
  return dataset.order === undefined ? null : Number(dataset.order);
};

const compare = (a, b) => {
  if (a === b) return 0;
  if (a === null || b === null) return a === null ? 2 : -2; // these are last either way
  return typeof a === "string" ? natural.compare(a, b) : Math.sign(a - b);
};

const found = () => {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const passing = rows.filter(({ text }) => words.every((word) => text.includes(word)));
  if (!sorting) return passing;
  const { column, down } = sorting;
  return passing.sort((a, b) => {
    const order = compare(key(a, column), key(b, column));
    return (down && Math.abs(order) < 2 ? -order : order) || a.index - b.index;
  });
};

const show = () => {
  const passing = found(),
    shown = passing.slice(0, limit);
  body.replaceChildren(...shown.map(({ tr }) => tr));
  more.hidden = shown.length === passing.length;
  more.textContent = `show more (${shownAs(shown.length)} of ${shownAs(passing.length)})`;
  output.textContent = search.value ? `${shownAs(passing.length)} of ${shownAs(rows.length)}` : "";
  heads.forEach((head, column) => {
    if (sorting?.column !== column) head.removeAttribute("aria-sort");
    else head.setAttribute("aria-sort", sorting.down ? "descending" : "ascending");
  });
  select.value = sorting ? String(sorting.column) : "";
  for (const row of rows) row.tr.classList.toggle("shown", row === linked);
};

const sortBy = (column) => {
  sorting = { column, down: sorting?.column === column ? !sorting.down : isNumber(column) };
  limit = STEP;
  show();
};

// Show the row that the address names, wherever it is filtered out or too far down.
const follow = () => {
  let name = location.hash.slice(1);
  try {
    name = decodeURIComponent(name);
  } catch {} // a percent sign that somebody typed
  linked = rows.find(({ tr }) => tr.id === name) ?? null;
  if (linked && !found().includes(linked)) search.value = "";
  if (linked) limit = Math.max(limit, found().indexOf(linked) + 50);
  show();
  linked?.tr.scrollIntoView({ block: "center" });
};

search.addEventListener("input", () => {
  limit = STEP;
  show();
});
select.addEventListener("change", () => {
  sorting = null;
  sortBy(Number(select.value));
});
more.addEventListener("click", () => {
  limit += STEP;
  show();
});
select.append(new Option("sort by …", ""));
heads.forEach((head, column) => {
  const button = document.createElement("button");
  button.textContent = head.textContent;
  head.replaceChildren(button);
  button.addEventListener("click", () => sortBy(column));
  select.append(new Option(`sort by ${button.textContent}`, String(column)));
});
addEventListener("hashchange", follow);
follow();
