// A treemap of the rows of a table: area is size, color is that of the row. A click zooms in; arrow
// keys go from box to box, Enter goes in, Escape goes out.
const unit = (bytes) => {
  let power = 0;
  for (; bytes >= 1023.95 && power < 4; power++) bytes /= 1024;
  return power ? `${bytes.toFixed(1)} ${["", "KiB", "MiB", "GiB", "TiB"][power]}` : `${bytes} B`;
};

class SizeMap {
  constructor(figure, table) {
    Object.assign(this, { figure, table, parts: JSON.parse(figure.dataset.parts || "{}") });
    this.nav = figure.querySelector("nav");
    this.map = figure.querySelector(".map");
    this.said = figure.querySelector("output");
    this.hint = this.said.textContent;
    this.column = table.heads.findIndex((head) => head.dataset.label === "change");
    const kinds = Object.keys(this.parts).filter((part) =>
      table.leaves.some(
        (row) => row.bytes && row.tags.some((tag) => this.parts[part].includes(tag)),
      ),
    );
    this.part = kinds[0] ?? "";
    if (kinds.length > 1) {
      this.choice = Object.assign(document.createElement("select"), {
        ariaLabel: "which values to draw",
      });
      this.choice.append(
        ...kinds.map((part) => new Option(part, part)),
        new Option("everything", ""),
      );
      this.choice.addEventListener("change", () => {
        this.part = this.choice.value;
        this.rebuild();
      });
    } else this.part = "";
    table.listeners.push(() => this.rebuild());
    this.map.addEventListener("click", (event) => {
      const box = event.target.closest(".box");
      if (box) this.enter(box.node);
    });
    this.map.addEventListener("keydown", (event) => this.key(event));
    for (const kind of ["mouseover", "focusin"])
      this.map.addEventListener(kind, (event) => {
        const box = event.target.closest(".box");
        if (box) this.say(box.node);
      });
    this.map.addEventListener("mouseleave", () => {
      this.said.textContent = this.hint;
    });
    new ResizeObserver(() => {
      if (this.width !== this.map.clientWidth) this.draw();
    }).observe(this.map);
    this.rebuild();
  }

  rebuild() {
    const chosen = this.parts[this.part],
      filtered = this.table.isFiltered;
    if (this.choice) this.choice.hidden = filtered;
    const wanted = (row) =>
      filtered ? this.table.passes(row) : !chosen || row.tags.some((tag) => chosen.includes(tag));
    const node = (row) => {
      if (!row.group)
        return wanted(row) && row.bytes ? { row, label: row.label, bytes: row.bytes } : null;
      const children = row.children.map(node).filter(Boolean);
      return children.length ? { row, label: row.label, children } : null;
    };
    const tops = this.table.rows
      .filter((row) => !row.parent)
      .map(node)
      .filter(Boolean);
    this.root = d3
      .hierarchy({ label: "all", children: tops })
      .sum((one) => one.bytes ?? 0)
      .sort((a, b) => b.value - a.value);
    this.top = this.only(this.root);
    this.draw();
  }

  // The first of its only children that has several: there is nothing to see in one box.
  only(node) {
    while (node.children?.length === 1 && node.children[0].children) node = node.children[0];
    return node;
  }

  draw(focused) {
    const width = (this.width = this.map.clientWidth),
      height = this.map.clientHeight;
    if (!width || !height) return;
    const root = this.top.copy();
    const paths = new Map(); // copies have no way back to the whole
    const pair = (copy, node) => {
      paths.set(copy, node);
      copy.children?.forEach((child, index) => pair(child, node.children[index]));
    };
    pair(root, this.top);
    const roomy = (node) => node.depth && node.x1 - node.x0 > 46 && node.y1 - node.y0 > 34;
    d3
      .treemap()
      .size([width, height])
      .round(true)
      .paddingInner(2)
      .paddingTop((node) => (roomy(node) ? 20 : node.depth ? 1 : 0))
      .paddingRight((node) => (node.depth ? 2 : 0))
      .paddingBottom((node) => (node.depth ? 2 : 0))
      .paddingLeft((node) => (node.depth ? 2 : 0))(root);
    const boxes = [];
    const place = (node) => {
      const w = node.x1 - node.x0,
        h = node.y1 - node.y0;
      if (node.depth && (w < 3 || h < 3)) return;
      const divided = node.children && (!node.depth || (roomy(node) && this.worth(node)));
      if (node.depth) boxes.push(this.box(node, paths.get(node), w, h, divided));
      if (divided) node.children.forEach(place);
    };
    place(root);
    this.map.replaceChildren(...boxes);
    const first = boxes.find((box) => box.node === focused) ?? boxes[0];
    if (first) first.tabIndex = 0;
    if (focused !== undefined) first?.focus();
    this.crumbs();
  }

  // Whether the boxes inside would be large enough to see.
  worth(node) {
    const most = node.children[0];
    return most.x1 - most.x0 > 6 && most.y1 - most.y0 > 6;
  }

  box(node, whole, w, h, divided) {
    const box = document.createElement("button");
    box.type = "button";
    box.tabIndex = -1;
    box.node = whole;
    box.className = divided ? "box group" : `box leaf ${this.hue(whole)}`;
    Object.assign(box.style, {
      left: `${node.x0}px`,
      top: `${node.y0}px`,
      width: `${w}px`,
      height: `${h}px`,
    });
    box.setAttribute("aria-label", this.description(whole));
    const number = w > 34 ? null : whole.data.label.match(/\d{1,3}$/);
    if (h > 16 && (w > 34 || (number && w > 4 + 6.8 * number[0].length))) {
      const label = document.createElement("span");
      label.textContent = number ? number[0] : this.fitted(whole, w);
      if (number) label.className = "number";
      const small = document.createElement("small"),
        known = this.measure(whole);
      small.textContent = number
        ? ""
        : h > 36 && !divided && w > 7.6 * known.length + 10
          ? known
          : divided && w > 190
            ? ` ${known}`
            : "";
      if (!divided && small.textContent) label.append(document.createElement("br"));
      label.append(small);
      box.append(label);
    }
    return box;
  }

  // Of a group, the color of its change, or else that of its largest value.
  hue(node) {
    const change =
      this.column > 0 && node.data.row.tr.cells[this.column].querySelector(".heat-cell");
    if (change) return change.classList[1];
    while (node.children) node = node.children[0];
    return node.data.row.hue;
  }

  // As much of the end of the name as there is room for: `block_7`, not `model/encoder/bl…`.
  fitted(node, width) {
    const letters = (width - 10) / 7.6,
      parts = node.data.label.split("/");
    let shown = parts.pop();
    while (parts.length && parts[parts.length - 1].length + shown.length + 1 <= letters)
      shown = `${parts.pop()}/${shown}`;
    return shown.length > letters && /\d$/.test(shown)
      ? `…${shown.slice(-Math.max(Math.floor(letters) - 1, 2))}`
      : shown;
  }

  // It has what is written on the box, `kernel 12 KiB`, as WCAG 2.5.3 asks for.
  description(node) {
    const name = node.data.row.name,
      change = this.change(node),
      count = node.children ? `, ${node.leaves().length.toLocaleString("en")} values` : "";
    return `${name} ${change ? `${change} changed, ${unit(node.value)}` : unit(node.value)}${count}`;
  }

  change(node) {
    return this.column > 0 ? node.data.row.tr.cells[this.column].textContent : "";
  }

  measure(node) {
    return this.change(node) || unit(node.value);
  }

  say(node) {
    this.said.textContent = this.description(node);
  }

  // Into a group; from a value that is further in into its layer, and from there to its row.
  enter(node) {
    if (!node.children && this.only(node.parent) !== this.top) node = node.parent;
    if (!node.children) {
      history.pushState(null, "", `#${encodeURIComponent(node.data.row.name)}`);
      this.table.reveal(node.data.row.name, true);
      return;
    }
    this.top = this.only(node);
    this.draw(null);
    this.say(this.top);
  }

  leave() {
    const left = this.top;
    let above = left.parent;
    while (above && above.children.length === 1 && above.parent) above = above.parent;
    if (!above || above.children.length === 1) return;
    this.top = above;
    let inside = left;
    while (inside.parent !== above) inside = inside.parent;
    this.draw(inside);
  }

  key(event) {
    const box = event.target.closest(".box");
    if (!box) return;
    if (event.key === "Escape") {
      this.leave();
      event.preventDefault();
      return;
    }
    const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const way = arrows[event.key];
    if (!way) return;
    event.preventDefault();
    const middle = (one) => [
      one.offsetLeft + one.offsetWidth / 2,
      one.offsetTop + one.offsetHeight / 2,
    ];
    const [x, y] = middle(box);
    let best = null,
      least = Infinity;
    for (const other of this.map.children) {
      if (other === box || other.node.parent !== box.node.parent) continue;
      const [ox, oy] = middle(other),
        along = (ox - x) * way[0] + (oy - y) * way[1];
      const across = Math.abs((ox - x) * way[1]) + Math.abs((oy - y) * way[0]);
      if (along > 1 && along + 2 * across < least) {
        least = along + 2 * across;
        best = other;
      }
    }
    if (best) {
      box.tabIndex = -1;
      best.tabIndex = 0;
      best.focus();
    }
  }

  crumbs() {
    const path = [];
    for (let node = this.top; node; node = node.parent) path.unshift(node);
    const shown = path.filter(
      (node, index) => index === path.length - 1 || node.children.length > 1,
    );
    const parts = [];
    shown.forEach((node, index) => {
      const last = index === shown.length - 1,
        name = node.data.row ? node.data.label : "all";
      const part = document.createElement(last ? "span" : "button");
      part.textContent = last ? `${node.data.row?.name ?? "all"} · ${unit(node.value)}` : name;
      if (!last) {
        part.type = "button";
        part.addEventListener("click", () => {
          this.top = node;
          this.draw(null);
        });
      }
      parts.push(
        part,
        ...(last ? [] : [Object.assign(document.createElement("span"), { textContent: "›" })]),
      );
    });
    this.nav.replaceChildren(...parts, ...(this.choice ? [this.choice] : []));
  }
}
