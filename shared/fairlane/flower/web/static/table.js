import { fill, make } from "./elements.js";

// A table that keeps its order, its filter and the keyboard's place while its rows come anew.
// Columns: {title, of, sort?, number?, quiet?}; a quiet title is for screen readers alone. `key` names a row.
export class Table {
  constructor(target, columns, { empty, key, filter = false, title = "" }) {
    Object.assign(this, { columns, empty, key, rows: [], wanted: "", sorted: null });
    this.body = make("tbody");
    this.heads = columns.map((column, number) => make("th", { scope: "col", class: column.number ? "number" : null },
      column.sort ? make("button", { type: "button", class: "fairlane-sort", click: () => this.sort(number) }, column.title)
        : make("span", { class: column.quiet ? "visually-hidden" : null }, column.title)));
    this.table = make("table", { class: "workers-table fairlane-table table table-hover align-middle w-100" },
      make("thead", {}, make("tr", {}, this.heads)), this.body);
    this.table.hidden = true;
    this.none = make("p", { class: "fairlane-empty", hidden: true }, empty);
    const search = filter && make("div", { class: "fairlane-filter" }, make("input", { type: "search", placeholder: "Filter",
      "aria-label": "Filter", class: "form-control form-control-sm", input: (event) => this.filter(event.target.value) }));
    // What is wider than the page scrolls, by the keyboard too.
    const scrolled = make("div", { class: "table-responsive", tabindex: 0, role: "group", "aria-label": title || target.getAttribute("aria-label") || "Table" }, this.table);
    fill(target, title && make("h2", {}, title), search, scrolled, this.none);
  }

  show(rows) {
    this.rows = rows;
    this.draw();
  }

  sort(number) {
    const down = this.sorted?.number === number ? !this.sorted.down : Boolean(this.columns[number].number);
    this.sorted = { number, down };
    this.heads.forEach((head, other) => head.removeAttribute("aria-sort") || (other === number && head.setAttribute("aria-sort", down ? "descending" : "ascending")));
    this.draw();
  }

  filter(text) {
    this.wanted = text.toLowerCase();
    this.draw();
  }

  draw() {
    let shown = [...this.rows];
    if (this.sorted) {
      const { number, down } = this.sorted;
      const value = this.columns[number].sort;
      shown.sort((one, other) => {
        const [a, b] = [value(one) ?? -Infinity, value(other) ?? -Infinity];
        return (a < b ? -1 : a > b ? 1 : 0) * (down ? -1 : 1);
      });
    }
    const lines = shown.map((row) => make("tr", { "data-key": this.key?.(row) },
      this.columns.map((column) => make("td", { class: column.number ? "number" : null }, column.of(row)))));
    fill(this.body, this.wanted ? lines.filter((line) => line.textContent.toLowerCase().includes(this.wanted)) : lines);
    this.table.hidden = !this.rows.length;
    this.none.hidden = Boolean(this.rows.length);
  }
}
