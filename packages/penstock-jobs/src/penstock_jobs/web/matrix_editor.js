// A table of cells to type or paste rows into. Tells the server all rows after a change.
export default {
  template: `
    <div class="p-scroll">
      <table class="p-cells p-edit">
        <thead><tr><th></th><th v-for="column in columns">{{ column }}</th></tr></thead>
        <tbody>
          <tr v-for="(row, y) in cells">
            <th>{{ y + 2 }}</th>
            <td v-for="(column, x) in columns" :class="{ wrong: problem(y, x) }" :title="problem(y, x)">
              <input :value="row[x]" :aria-label="column + ', row ' + (y + 2)" :aria-invalid="!!problem(y, x)"
                     autocomplete="off" spellcheck="false" @input="type(y, x, $event.target.value)"
                     @change="send" @paste="paste(y, x, $event)" @keydown.enter="below(y, x, $event)">
            </td>
          </tr>
        </tbody>
      </table>
    </div>`,
  // The rows are taken over when the number changes: every update of the page sends them again.
  props: { columns: Array, rows: Array, number: Number, problems: Object, most: Number },
  emits: ["rows"],
  data() {
    return { cells: [], timer: null };
  },
  watch: {
    number: { immediate: true, handler: "load" },
  },
  methods: {
    load() {
      this.cells = (this.rows || []).map((row) => this.columns.map((_, x) => row[x] || ""));
      this.fill();
    },
    fill() {
      const blank = () => this.columns.map(() => "");
      while (this.cells.length < 5) this.cells.push(blank());
      if (this.cells.length < this.most && this.cells[this.cells.length - 1].some((cell) => cell))
        this.cells.push(blank());
    },
    problem(y, x) {
      return (this.problems || {})[y + "," + x] || "";
    },
    type(y, x, text) {
      this.cells[y][x] = text;
      this.changed();
    },
    // Cells of a spreadsheet come as lines with tabs between them, those of a CSV with semicolons.
    paste(y, x, event) {
      const text = event.clipboardData.getData("text/plain").replace(/\r\n?/g, "\n").replace(/\n$/, "");
      const mark = text.includes("\t") ? "\t" : ";";
      if (!text.includes("\n") && !text.includes(mark)) return;
      event.preventDefault();
      text.split("\n").slice(0, this.most - y).forEach((line, down) => {
        while (this.cells.length <= y + down) this.cells.push(this.columns.map(() => ""));
        line.split(mark).forEach((cell, right) => {
          if (x + right < this.columns.length) this.cells[y + down][x + right] = cell.trim();
        });
      });
      this.changed();
    },
    below(y, x, event) {
      const row = event.target.closest("tr").nextElementSibling;
      if (row) row.querySelectorAll("input")[x].focus();
    },
    changed() {
      this.fill();
      clearTimeout(this.timer);
      this.timer = setTimeout(this.send, 250);
    },
    // At once when a cell is left, so that a click on a button finds what was typed.
    send() {
      clearTimeout(this.timer);
      this.$emit("rows", this.cells);
    },
  },
};
