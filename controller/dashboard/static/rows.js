// A table of any length: only the rows in sight, and a few beside them, are in the document.

import { h, say } from "./dom.js";

const BESIDE = 6;
let tables = 0;

export class Rows {
  // columns: {name, class, text(item), href(item) or nothing}; key(item) names the row; open(item) is Enter or a click.
  constructor({ label, columns, key, open = null, end = null }) {
    Object.assign(this, { columns, key, open, end, items: [], shown: new Map(), active: -1, id: `rows${++tables}` });
    this.space = h("div", { class: "space", role: "rowgroup" });
    this.scroller = h(
      "div",
      { class: "scroller", role: "grid", tabindex: 0, "aria-label": label, onkeydown: (event) => this.press(event) },
      h("div", { class: "row head", role: "row" }, ...columns.map((column) => this.head(column))),
      this.space,
    );
    this.scroller.addEventListener("scroll", () => this.soon(), { passive: true });
    this.observer = new ResizeObserver(() => this.soon());
    this.observer.observe(this.scroller);
    this.element = this.scroller;
  }

  head(column) {
    return h("span", { class: column.class, role: "columnheader" }, column.name);
  }

  set(items) {
    this.items = items;
    this.scroller.setAttribute("aria-rowcount", items.length);
    this.active = Math.min(this.active, items.length - 1);
    this.soon();
  }

  soon() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.draw();
    });
  }

  get height() {
    return parseFloat(getComputedStyle(this.scroller).getPropertyValue("--row")) || 34;
  }

  draw() {
    const height = this.height;
    const first = Math.max(Math.floor(this.scroller.scrollTop / height) - BESIDE, 0);
    const last = Math.min(first + Math.ceil(this.scroller.clientHeight / height) + 2 * BESIDE, this.items.length);
    this.space.style.height = `${this.items.length * height}px`;
    const seen = new Map();
    for (let index = first; index < last; index++) {
      const item = this.items[index];
      const key = this.key(item);
      const row = this.shown.get(key) ?? this.make(key);
      this.fill(row, item, index);
      row.style.transform = `translateY(${index * height}px)`;
      seen.set(key, row);
    }
    for (const [key, row] of this.shown) if (!seen.has(key)) row.remove();
    let next = this.space.firstChild; // they are read in the order of the document
    for (const row of seen.values()) {
      if (row === next) next = next.nextSibling;
      else this.space.insertBefore(row, next);
    }
    this.shown = seen;
    const active = this.items[this.active];
    if (active !== undefined) this.scroller.setAttribute("aria-activedescendant", `${this.id}-${this.key(active)}`);
    if (this.end && last === this.items.length) this.end();
  }

  make(key) {
    const cells = this.columns.map((column) => {
      const text = column.href ? h("a", { tabindex: -1 }) : h("span", {});
      return h("span", { class: `cell ${column.class}`, role: "gridcell" }, text);
    });
    const row = h("div", { class: "row", role: "row", id: `${this.id}-${key}`, "data-key": key }, ...cells);
    row.addEventListener("click", (event) => event.target.closest("a") || this.open?.(row.item));
    return row;
  }

  fill(row, item, index) {
    row.item = item;
    row.setAttribute("aria-rowindex", index + 1);
    row.classList.toggle("active", index === this.active);
    this.columns.forEach((column, number) => {
      const cell = row.children[number];
      const text = column.text(item);
      say(cell.firstChild, text);
      if (cell.title !== text) cell.title = text;
      if (column.mark) cell.dataset.mark = column.mark(item);
      const href = column.href?.(item);
      if (href) cell.firstChild.setAttribute("href", href);
      else cell.firstChild.removeAttribute("href");
    });
  }

  press(event) {
    const page = Math.max(Math.floor(this.scroller.clientHeight / this.height) - 1, 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key === "Enter" && this.items[this.active] !== undefined) return this.open?.(this.items[this.active]);
    if (!(event.key in steps) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.active = Math.max(Math.min(this.active + steps[event.key], this.items.length - 1), 0);
    const top = this.active * this.height;
    const bottom = top + 2 * this.height; // the head covers a row
    if (top < this.scroller.scrollTop) this.scroller.scrollTop = top;
    else if (bottom > this.scroller.scrollTop + this.scroller.clientHeight)
      this.scroller.scrollTop = bottom - this.scroller.clientHeight;
    this.soon();
  }

  close() {
    this.observer.disconnect();
  }
}
