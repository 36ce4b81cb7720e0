// A table of values: fold, search, filter, sort, link to and copy a name. Of thousands of rows only
// those that are shown are in the document, a hundred or two at a time.
const STEP = 150;

const copyText = async (text, target) => {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = document.body.appendChild(
      Object.assign(document.createElement("textarea"), { value: text }),
    );
    field.select();
    document.execCommand("copy");
    field.remove();
  }
  target.dataset.text ??= target.textContent;
  target.textContent = "copied";
  setTimeout(() => (target.textContent = target.dataset.text), 900);
};
document.addEventListener("click", (event) => {
  const code = event.target.closest?.(".copied");
  if (code) copyText(code.dataset.text ?? code.textContent, code);
});

const numberOf = (text) => {
  const clean = text.replace(/−/g, "-").replace(/,/g, "");
  if (clean.includes("∞")) return clean.includes("-") ? -Infinity : Infinity;
  const found = parseFloat(clean);
  return Number.isNaN(found) ? null : found;
};

// A name that a line may break after each slash.
const breakable = (name) =>
  name
    .split(/(?<=\/)/)
    .flatMap((part) => [part, document.createElement("wbr")])
    .slice(0, -1);

class ValueTable {
  constructor(section) {
    this.section = section;
    this.table = section.querySelector("table");
    this.body = this.table.tBodies[0];
    this.heads = [...this.table.tHead.rows[0].cells];
    this.kinds = this.heads.map((head) => head.className);
    this.listeners = [];
    this.limit = STEP;
    this.words = [];
    this.filters = [];
    this.sorting = null;
    this.copy = Object.assign(document.createElement("button"), {
      type: "button",
      className: "copy",
      textContent: "copy",
      ariaLabel: "copy the name",
    });
    const open = [],
      prefix = (this.prefix = this.table.dataset.prefix);
    this.rows = [...this.body.rows].map((tr, index) => {
      const level = +tr.dataset.level,
        group = tr.dataset.group !== undefined;
      open.length = Math.min(level, open.length);
      const row = {
        tr,
        index,
        level,
        group,
        name: tr.id.startsWith(prefix) ? tr.id.slice(prefix.length) : tr.id,
        bytes: +tr.dataset.bytes,
        tags: tr.dataset.tags?.split("|") ?? [],
        hue: tr.dataset.hue,
        parent: open[level - 1] ?? null,
        children: [],
        open: tr.dataset.group === "open",
        label: tr.cells[0].querySelector("a, .label").textContent,
      };
      row.parent?.children.push(row);
      open[level] = row;
      if (group) open.length = level + 1;
      tr.classList.remove("folded");
      return row;
    });
    this.byTr = new Map(this.rows.map((row) => [row.tr, row]));
    this.byName = new Map(this.rows.map((row) => [row.name, row]));
    this.leaves = this.rows.filter((row) => !row.group);
    this.nested = this.leaves.length < this.rows.length;
    this.table.classList.toggle("nested", this.nested);
    this.listenToTools();
    this.listenToHeads();
    this.listenToFilters();
    this.listenToScrolling();
    this.listenToRows();
    const [, down, label] = this.table.dataset.sort.match(/^(-?)(.*)$/);
    const column = this.heads.findIndex((head) => head.dataset.label === label);
    if (column >= 0) this.sortBy(column, Boolean(down));
    else this.show();
  }

  listenToTools() {
    const tools = this.section.querySelector(".tools");
    const [search, select, all, none] = ["input", "select", ".open", ".close"].map((one) =>
      tools.querySelector(one),
    );
    this.output = tools.querySelector("output");
    this.select = select;
    this.search = search;
    all.hidden = none.hidden = !this.nested;
    search.addEventListener("input", () => {
      this.words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      this.limit = STEP;
      this.show();
    });
    all.addEventListener("click", () => this.openAll(true));
    none.addEventListener("click", () => this.openAll(false));
    select.addEventListener("change", () =>
      this.sortBy(+select.value, this.isNumber(+select.value)),
    );
  }

  listenToHeads() {
    this.heads.forEach((head, column) => {
      const label = head.textContent;
      head.dataset.label = label;
      if (this.kinds[column] === "picture") return;
      const button = Object.assign(document.createElement("button"), {
        type: "button",
        textContent: label,
      });
      if (head.title) button.title = head.title;
      head.replaceChildren(button);
      button.addEventListener("click", () =>
        this.sortBy(
          column,
          this.sorting?.column === column ? !this.sorting.down : this.isNumber(column),
        ),
      );
      this.select.append(new Option(`sort by ${column ? label : "name"}`, String(column)));
    });
  }

  listenToFilters() {
    for (const group of this.section.querySelectorAll(".filters")) {
      const chosen = new Set();
      this.filters.push(chosen);
      for (const chip of group.children) {
        if (chip.getAttribute("aria-pressed") === "true") chosen.add(chip.dataset.tag);
        chip.addEventListener("click", () => {
          const on = chip.getAttribute("aria-pressed") !== "true";
          chip.setAttribute("aria-pressed", String(on));
          chosen[on ? "add" : "delete"](chip.dataset.tag);
          this.limit = STEP;
          this.show();
          this.tell();
        });
      }
    }
  }

  listenToScrolling() {
    const more = (this.more = this.section.querySelector(".more"));
    more.addEventListener("click", () => {
      this.limit += STEP;
      this.show();
    });
    new IntersectionObserver(
      (seen) => {
        if (seen.some((one) => one.isIntersecting) && !more.hidden && this.scrolled) more.click();
      },
      { rootMargin: "300px" },
    ).observe(more);
    addEventListener("scroll", () => (this.scrolled = true), { passive: true });
  }

  listenToRows() {
    this.body.addEventListener("click", (event) => {
      const row = this.byTr.get(event.target.closest("tr"));
      if (!row) return;
      const link = event.target.closest("th a");
      if (event.target.closest(".fold")) {
        row.open = !row.open;
        this.show();
        row.tr.querySelector(".fold").focus();
      } else if (event.target === this.copy) copyText(row.name, this.copy);
      else if ((link || this.chosen) && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
        event.preventDefault();
        history.replaceState(null, "", `#${encodeURIComponent(row.tr.id)}`);
        const again = this.marked === row && this.body.querySelector(".detail");
        this.mark(row);
        this.chosen?.(again ? null : row);
      }
    });
    this.body.addEventListener("keydown", (event) => {
      const row = this.byTr.get(event.target.closest("tr"));
      const fold = event.target.closest(".fold");
      if (row && fold && (event.key === "ArrowRight" || event.key === "ArrowLeft")) {
        const wanted = event.key === "ArrowRight";
        if (row.open !== wanted) {
          row.open = wanted;
          this.show();
          row.tr.querySelector(".fold").focus();
        }
        event.preventDefault();
      } else if (row && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
        const next =
          event.key === "ArrowDown" ? row.tr.nextElementSibling : row.tr.previousElementSibling;
        const target = next?.querySelector(".fold, th a");
        if (target) {
          target.focus();
          event.preventDefault();
        }
      }
    });
    const offer = (event) => {
      const tr = event.target.closest("tr"),
        row = this.byTr.get(tr);
      if (row && this.copy.parentElement !== tr.cells[0]) tr.cells[0].append(this.copy);
    };
    this.body.addEventListener("focusin", (event) => {
      if (event.target !== this.copy) offer(event);
    });
    this.body.addEventListener("mouseover", offer);
  }

  isNumber(column) {
    return this.kinds[column] === "number" || this.kinds[column] === "bytes";
  }

  tell() {
    for (const listener of this.listeners) listener();
  }

  openAll(open) {
    for (const row of this.rows) row.open = open;
    this.sorting = null;
    this.limit = STEP;
    this.show();
  }

  sortBy(column, down) {
    this.sorting = column > 0 || !this.nested ? { column, down } : null;
    this.limit = STEP;
    this.show();
  }

  key(row, column) {
    row.keys ??= [];
    if (row.keys[column] === undefined) {
      const kind = this.kinds[column],
        text = column ? row.tr.cells[column].textContent : row.name;
      row.keys[column] =
        kind === "bytes"
          ? row.bytes
          : kind === "number"
            ? numberOf(text)
            : (row.tr.cells[column].firstElementChild?.dataset.order ?? text);
    }
    return row.keys[column];
  }

  get isFiltered() {
    return this.filters.some((chosen) => chosen.size);
  }

  // Whether it has one of the chosen tags of each group of filters.
  passes(row) {
    return this.filters.every((chosen) => !chosen.size || row.tags.some((tag) => chosen.has(tag)));
  }

  matches(row) {
    if (!this.passes(row)) return false;
    row.text ??= `${row.name} ${row.tr.textContent}`.toLowerCase();
    return this.words.every((word) => row.text.includes(word));
  }

  visible() {
    const filtered = this.words.length || this.isFiltered;
    const found = filtered ? this.leaves.filter((row) => this.matches(row)) : this.leaves;
    this.found = found.length;
    if (this.sorting) {
      const { column, down } = this.sorting,
        sign = down ? -1 : 1;
      const natural = (this.natural ??= new Intl.Collator("en", { numeric: true }));
      const rank = (a, b) =>
        a === b
          ? 0
          : a === null
            ? 1
            : b === null
              ? -1
              : sign * (typeof a === "string" ? natural.compare(a, b) : a < b ? -1 : 1);
      return [...found].sort(
        (a, b) => rank(this.key(a, column), this.key(b, column)) || a.index - b.index,
      );
    }
    const wanted = new Set();
    for (const leaf of filtered ? found : [])
      for (let row = leaf; row && !wanted.has(row); row = row.parent) wanted.add(row);
    const shown = [];
    let closed = Infinity;
    for (const row of this.rows) {
      if (row.level > closed) continue;
      closed = Infinity;
      if (filtered && !wanted.has(row)) continue;
      shown.push(row);
      if (row.group && !row.open && !this.words.length) closed = row.level;
    }
    return shown;
  }

  show() {
    const flat = Boolean(this.sorting),
      all = this.visible(),
      rows = all.slice(0, this.limit);
    for (const row of rows) this.dress(row, flat);
    this.table.classList.toggle("flat", flat);
    this.body.replaceChildren(...rows.map((row) => row.tr));
    this.more.hidden = rows.length === all.length;
    this.more.textContent = `show more (${rows.length.toLocaleString("en")} of ${all.length.toLocaleString("en")})`;
    const filtered = this.words.length || this.isFiltered;
    this.output.textContent = filtered
      ? `${this.found.toLocaleString("en")} of ${this.leaves.length.toLocaleString("en")}`
      : "";
    this.heads.forEach((head, column) => {
      if (this.sorting?.column === column)
        head.setAttribute("aria-sort", this.sorting.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    this.select.value = String(this.sorting?.column ?? 0);
  }

  dress(row, flat) {
    const head = row.tr.cells[0];
    if (row.group) {
      let button = head.querySelector(".fold");
      if (!button) {
        button = Object.assign(document.createElement("button"), {
          type: "button",
          className: "fold",
        });
        const label = head.querySelector(".label");
        button.textContent = label.textContent;
        label.replaceWith(button);
      }
      button.setAttribute("aria-expanded", String(row.open || this.words.length > 0));
    } else {
      const link = head.querySelector("a");
      if (row.flat !== flat) link.replaceChildren(...breakable(flat ? row.name : row.label));
      row.flat = flat;
    }
    if (!row.dressed) {
      row.dressed = true;
      this.kinds.forEach((kind, column) => {
        const cell = row.tr.cells[column];
        if (column && kind) {
          cell.classList.add(kind);
          if (kind === "number" && cell.textContent)
            cell.dataset.label = this.heads[column].dataset.label;
        }
      });
    }
  }

  mark(row) {
    this.body.querySelector(".shown")?.classList.remove("shown");
    this.marked?.tr.classList.remove("shown");
    this.marked = row;
    row.tr.classList.add("shown");
  }

  // Show the row of a name, wherever it is folded in, filtered out or too far down.
  reveal(id, focus) {
    const row = id.startsWith(this.prefix) && this.byName.get(id.slice(this.prefix.length));
    if (!row) return false;
    for (let above = row.parent; above; above = above.parent) above.open = true;
    if (row.group) row.open = true;
    let all = this.visible();
    if (!all.includes(row)) {
      this.words = [];
      this.search.value = "";
      this.filters.forEach((chosen) => chosen.clear());
      this.sorting = row.group ? null : this.sorting;
      for (const chip of this.section.querySelectorAll(".filters button"))
        chip.setAttribute("aria-pressed", "false");
      all = this.visible();
      this.tell();
    }
    this.limit = Math.max(this.limit, all.indexOf(row) + 50);
    this.show();
    this.mark(row);
    row.tr.scrollIntoView({ block: "center" });
    if (focus) row.tr.querySelector(".fold, th a")?.focus({ preventScroll: true });
    this.chosen?.(row);
    return true;
  }
}
