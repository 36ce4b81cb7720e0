// The table of a run: search, filter, sort, and open below a row what is known about its checkpoint.
// Of thousands of rows only those that are shown are in the document, a hundred or two at a time.
const STEP = 150;
const find = (selector) => document.querySelector(selector);
const all = (selector, from = document) => [...from.querySelectorAll(selector)];
const body = find("tbody");
const [search, select, output, more] = [".tools input", ".tools select", ".tools output", ".more"].map(find);
const heads = all("thead th");
const chips = all(".filters button");
const marks = all(".mark");
const rows = all("tr[id]", body).map((tr, index) => ({
  tr,
  index,
  name: tr.id,
  detail: tr.nextElementSibling,
  text: tr.textContent.toLowerCase(),
}));
const natural = new Intl.Collator("en", { numeric: true });
const isNumber = (column) => heads[column].className === "number";
const isPressed = (chip) => chip.getAttribute("aria-pressed") === "true";
const shownAs = (count) => count.toLocaleString("en");
let sorting = null,
  limit = STEP,
  opened = null;

const key = (row, column) => {
  const { dataset, textContent } = row.tr.cells[column];
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
  const states = chips.filter(isPressed).map((chip) => chip.dataset.state);
  const passing = rows.filter(
    ({ tr, text }) =>
      (!states.length || states.includes(tr.dataset.state)) &&
      words.every((word) => text.includes(word)),
  );
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
  body.replaceChildren(
    ...shown.flatMap((row) => (row === opened ? [row.tr, row.detail] : [row.tr])),
  );
  more.hidden = shown.length === passing.length;
  more.textContent = `show more (${shownAs(shown.length)} of ${shownAs(passing.length)})`;
  output.textContent =
    search.value || chips.some(isPressed) ? `${shownAs(passing.length)} of ${shownAs(rows.length)}` : "";
  heads.forEach((head, column) => {
    if (sorting?.column !== column) head.removeAttribute("aria-sort");
    else head.setAttribute("aria-sort", sorting.down ? "descending" : "ascending");
  });
  select.value = sorting ? String(sorting.column) : "";
  for (const { tr, name } of rows) tr.classList.toggle("shown", name === opened?.name);
  for (const mark of marks) mark.classList.toggle("shown", nameOf(mark) === opened?.name);
};

const again = () => {
  limit = STEP;
  show();
};

const sortBy = (column) => {
  sorting = { column, down: sorting?.column === column ? !sorting.down : isNumber(column) };
  again();
};

const nameOf = (link) => {
  const name = link.getAttribute("href").slice(1);
  try {
    return decodeURIComponent(name);
  } catch {
    return name; // a percent sign that somebody typed
  }
};

// Show the row of a name, wherever it is filtered out or too far down.
const reveal = (name) => {
  opened = rows.find((row) => row.name === name) ?? null;
  if (!opened) return;
  if (!found().includes(opened)) {
    search.value = "";
    for (const chip of chips) chip.setAttribute("aria-pressed", "false");
  }
  limit = Math.max(limit, found().indexOf(opened) + 50);
  show();
  opened.tr.scrollIntoView({ block: "center" });
  opened.tr.querySelector("a").focus({ preventScroll: true });
};

const copy = async (code) => {
  const text = (code.dataset.text ??= code.textContent);
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = document.body.appendChild(document.createElement("textarea"));
    field.value = text;
    field.select();
    document.execCommand("copy");
    field.remove();
  }
  code.textContent = "copied";
  setTimeout(() => (code.textContent = text), 900);
};

search.addEventListener("input", again);
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
for (const chip of chips)
  chip.addEventListener("click", () => {
    chip.setAttribute("aria-pressed", String(!isPressed(chip)));
    again();
  });

document.addEventListener("click", (event) => {
  const code = event.target.closest(".copied"),
    link = event.target.closest("a"),
    row = rows.find(({ tr }) => tr.contains(event.target));
  if (code) copy(code);
  else if (event.ctrlKey || event.metaKey || event.shiftKey) return;
  else if (row && row === opened) {
    event.preventDefault();
    opened = null;
    show();
  } else if (link || row) {
    event.preventDefault();
    const name = row?.name ?? nameOf(link);
    history.replaceState(null, "", `#${encodeURIComponent(name)}`);
    reveal(name);
  }
});

// The arrow keys go from mark to mark and from row to row; Escape closes what is open.
const focusNext = (links, from, next) => {
  links[links.indexOf(from) + next]?.focus();
  return links.includes(from);
};
document.addEventListener("keydown", (event) => {
  const { key: pressed, target } = event;
  let done = false;
  if (pressed === "Escape") {
    opened = null;
    show();
  } else if (pressed === "ArrowLeft" || pressed === "ArrowRight")
    done = focusNext(marks, target, pressed === "ArrowLeft" ? -1 : 1);
  else if (pressed === "ArrowUp" || pressed === "ArrowDown")
    done = focusNext(all("tbody th a"), target, pressed === "ArrowUp" ? -1 : 1);
  if (done) event.preventDefault();
});
for (const mark of marks.slice(0, -1)) mark.setAttribute("tabindex", "-1");

const follow = () => reveal(nameOf({ getAttribute: () => location.hash }));
addEventListener("hashchange", follow);
show();
if (location.hash) follow();
