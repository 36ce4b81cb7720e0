// The checkpoints of a run on a line of steps, and below it their metrics as curves, all over one
// axis. A click, or Enter, opens what is known about one.
class Curves {
  constructor(figure, table) {
    Object.assign(this, { figure, table, ...JSON.parse(figure.dataset.run) });
    this.holder = figure.querySelector("div");
    this.tip = figure.querySelector(".tip");
    this.articles = new Map(
      [...document.querySelectorAll(".details article")].map((one) => [one.dataset.name, one]),
    );
    this.section = document.querySelector(".details");
    figure.after(this.section);
    if (table) table.chosen = (row) => this.open(row?.name ?? "", row?.tr);
    this.holder.addEventListener("pointermove", (event) => this.point(this.nearest(event)));
    this.holder.addEventListener("pointerleave", () => this.point(null));
    this.holder.addEventListener("click", (event) => {
      const found = this.nearest(event);
      if (found) this.choose(found);
    });
    this.holder.addEventListener("focusin", (event) => this.point(event.target.point ?? null));
    this.holder.addEventListener("focusout", () => this.point(null));
    this.holder.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => {
      if (this.width !== this.holder.clientWidth) this.draw();
    }).observe(this.holder);
    this.draw();
  }

  draw() {
    const width = (this.width = this.holder.clientWidth);
    if (!width) return;
    const wide = width > 640,
      left = 56,
      right = wide ? 120 : 14,
      strip = 46,
      height = wide ? 132 : 112,
      gap = 30;
    const xs = this.points.map((one) => one.x),
      low = Math.min(...xs),
      high = Math.max(...xs);
    const x = (value) =>
      high > low
        ? left + ((value - low) / (high - low)) * (width - left - right)
        : (left + width - right) / 2;
    this.at = this.points.map((one) => x(one.x));
    const total = strip + this.panels.length * (height + gap) + 26;
    const svg = this.make(null, "svg", {
      width,
      height: total,
      viewBox: `0 0 ${width} ${total}`,
      role: "group",
      "aria-label": this.label,
    });
    for (const run of this.runs) {
      this.make(svg, "line", { class: "rule", x1: x(run.x), x2: x(run.x), y1: 4, y2: total - 24 });
      this.make(svg, "text", { x: x(run.x) + 4, y: 10 }, run.label);
    }
    this.panels.forEach((panel, index) =>
      this.panel(svg, panel, strip + index * (height + gap) + 18, height - 18, x, {
        left,
        right,
        width,
        wide,
      }),
    );
    const bottom = total - 22;
    this.make(svg, "line", { class: "axis", x1: left, x2: width - right, y1: bottom, y2: bottom });
    for (const tick of d3.ticks(low, high, Math.max(Math.floor((width - left - right) / 90), 2))) {
      if (!Number.isInteger(tick)) continue;
      this.make(svg, "line", {
        class: "axis",
        x1: x(tick),
        x2: x(tick),
        y1: bottom,
        y2: bottom + 4,
      });
      this.make(
        svg,
        "text",
        { x: x(tick), y: bottom + 17, "text-anchor": "middle" },
        tick.toLocaleString("en"),
      );
    }
    this.make(
      svg,
      "text",
      { x: wide ? width - right + 10 : 0, y: bottom + (wide ? 4 : 17) },
      this.axis,
    );
    this.here = this.make(svg, "line", { class: "here", y1: 0, y2: bottom, visibility: "hidden" });
    this.make(svg, "line", { class: "axis", x1: left, x2: width - right, y1: 26, y2: 26 });
    this.marks = this.points.map((point, index) => this.mark(svg, point, this.at[index], index));
    this.holder.replaceChildren(svg);
  }

  mark(svg, point, x, index) {
    const mark = this.make(svg, "g", {
      class: `mark ${point.flags.join(" ")}`,
      role: "button",
      tabindex: index === this.points.length - 1 ? 0 : -1,
      transform: `translate(${x},26)`,
      "aria-label": point.text.replace(/\n/g, ", "),
    });
    this.make(mark, "circle", { class: "ring", r: 10 });
    if (point.flags.includes("damaged")) this.make(mark, "path", { d: "M-5-5L5 5M5-5L-5 5" });
    else if (point.flags.includes("best"))
      this.make(mark, "path", {
        d: "M0-9L2.6-2.9 9-2.6 4.1 1.6 5.7 8 0 4.4-5.7 8-4.1 1.6-9-2.6-2.6-2.9Z",
      });
    else if (this.points.length > 120 && point.flags[0] !== "kept")
      this.make(mark, "path", { class: "dot", d: "M0-5V5" });
    else this.make(mark, "circle", { class: "dot", r: this.points.length > 60 ? 3.5 : 5 });
    mark.point = point;
    return mark;
  }

  panel(svg, panel, top, height, x, { left, right, width, wide }) {
    const every = panel.series.flatMap((one) => one.values).filter((value) => value !== null);
    let low = panel.bars ? 0 : Math.min(...every),
      high = Math.max(...every);
    if (low === high) {
      low -= Math.abs(low) / 2 || 1;
      high += Math.abs(high) / 2 || 1;
    }
    if (!panel.bars) low -= (high - low) * 0.04;
    const ticks = d3.ticks(low, high, 3);
    const y = (value) => top + height - ((value - low) / (high - low)) * height;
    for (const tick of ticks) {
      this.make(svg, "line", {
        class: "grid",
        x1: left,
        x2: width - right,
        y1: y(tick),
        y2: y(tick),
      });
      this.make(
        svg,
        "text",
        { x: left - 6, y: y(tick) + 4, "text-anchor": "end" },
        panel.units ? unit(tick) : String(+tick.toPrecision(6)),
      );
    }
    this.make(svg, "text", { class: "name", x: left, y: top - 8 }, panel.name);
    const ends = [];
    panel.series.forEach((series, number) => {
      const known = series.values
        .map((value, index) => [this.at[index], value])
        .filter(([, value]) => value !== null)
        .map(([at, value]) => [at, y(value)]);
      if (panel.bars) {
        const thick = Math.max(Math.min((width - left - right) / this.points.length - 2, 18), 1.5);
        for (const [at, to] of known)
          this.make(svg, "rect", {
            class: "bar",
            x: at - thick / 2,
            y: to,
            width: thick,
            height: Math.max(top + height - to, 1),
          });
        return;
      }
      this.make(svg, "path", {
        class: `curve stroke${number % 4}`,
        d: `M${known.map(([at, to]) => `${at.toFixed(1)} ${to.toFixed(1)}`).join("L")}`,
      });
      if (known.length <= 60)
        for (const [at, to] of known)
          this.make(svg, "circle", { class: `dot${number % 4}`, cx: at, cy: to, r: 2.6 });
      if (known.length) ends.push({ number, name: series.name, y: known[known.length - 1][1] });
    });
    if (panel.bars || (panel.series.length === 1 && panel.series[0].name === panel.name)) return;
    ends.sort((a, b) => a.y - b.y);
    let before = -Infinity,
      across = left + panel.name.length * 7.5 + 16;
    for (const end of ends) {
      const at = wide
        ? [width - right + 10, (before = Math.max(end.y + 4, before + 14))]
        : [across, top - 8];
      this.make(
        svg,
        "text",
        { x: at[0], y: at[1], class: `dot${end.number % 4}` },
        wide ? end.name : `● ${end.name}`,
      );
      across += end.name.length * 6.6 + 22;
    }
  }

  make(parent, name, attributes, text) {
    const element = document.createElementNS(this.figure.querySelector("svg").namespaceURI, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    parent?.append(element);
    return element;
  }

  nearest(event) {
    const x = event.clientX - this.holder.getBoundingClientRect().left;
    let best = 0;
    this.at?.forEach((at, index) => {
      if (Math.abs(at - x) < Math.abs(this.at[best] - x)) best = index;
    });
    return this.points[best] ?? null;
  }

  point(point) {
    this.tip.hidden = !point;
    this.here?.setAttribute("visibility", point ? "visible" : "hidden");
    if (!point) return;
    const x = this.at[this.points.indexOf(point)];
    this.here.setAttribute("x1", x);
    this.here.setAttribute("x2", x);
    this.tip.textContent = point.text;
    const fits = x + 16 + this.tip.offsetWidth < this.width;
    this.tip.style.left = `${Math.max(fits ? x + 14 : x - 14 - this.tip.offsetWidth, 0)}px`;
    this.tip.style.top = "44px";
  }

  key(event) {
    const index = this.marks.indexOf(event.target.closest(".mark"));
    if (index < 0) return;
    const next = {
      ArrowLeft: index - 1,
      ArrowRight: index + 1,
      Home: 0,
      End: this.marks.length - 1,
    }[event.key];
    if (next !== undefined && this.marks[next]) {
      this.marks[index].setAttribute("tabindex", -1);
      this.marks[next].setAttribute("tabindex", 0);
      this.marks[next].focus();
    } else if (event.key === "Enter" || event.key === " ") this.choose(this.points[index]);
    else if (event.key === "Escape") this.open("");
    else return;
    event.preventDefault();
  }

  choose(point) {
    history.replaceState(null, "", `#${encodeURIComponent(point.name)}`);
    const row = this.table?.byName.get(point.name);
    if (row) this.table.mark(row);
    this.open(point.name);
  }

  // Show what is known about a checkpoint: below its row, or below the curves.
  open(name, tr) {
    this.table?.body.querySelector(".detail")?.remove();
    for (const [key, article] of this.articles) {
      this.section.append(article);
      article.classList.toggle("shown", key === name);
    }
    const shown = this.articles.get(name);
    if (shown && tr?.isConnected) {
      const below = document.createElement("tr"),
        cell = below.insertCell();
      below.className = "detail";
      cell.colSpan = tr.cells.length;
      cell.append(shown);
      tr.after(below);
    } else shown?.scrollIntoView({ block: "nearest" });
    this.points.forEach((point, index) =>
      this.marks[index].classList.toggle("shown", point.name === name),
    );
  }
}
