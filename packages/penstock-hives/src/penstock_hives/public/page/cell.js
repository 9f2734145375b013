// How full a place is: a cell of the comb that fills up.

import { make } from "./elements.js";
import { isClosed, levelOf, stale } from "./words.js";

const HEXAGON = "M50 3 91 26.5v47L50 97 9 73.5v-47Z";

let cells = 0;
export function cell(big = false) {
  const clip = `cell-${cells++}`;
  const fill = make("rect", { class: "fill", x: 0, y: 0, width: 100, height: 100, "clip-path": "none" });
  fill.style.transform = "scaleY(0)";
  const value = make("b");
  const element = make("div", { class: big ? "cell big" : "cell", "aria-hidden": "true" },
    make("svg", { viewBox: "0 0 100 100" },
      make("clipPath", { id: clip }, make("path", { d: HEXAGON })),
      make("path", { class: "wall", d: HEXAGON }),
      make("svg", { "clip-path": `url(#${clip})`, viewBox: "0 0 100 100", width: 100, height: 100 }, fill)),
    value);
  return {
    element,
    show: (figure, hive) => {
      const closed = isClosed(hive);
      element.dataset.level = levelOf(figure, hive);
      const share = figure && !closed ? Math.min(1, (figure.percent ?? 0) / 100) : 0;
      fill.style.transform = `scaleY(${share})`;
      if (!figure || closed) value.replaceChildren("–");
      else if (stale(figure)) value.replaceChildren("?");
      else if (figure.percent === null) value.replaceChildren(String(figure.occupancy));
      else value.replaceChildren(String(Math.round(figure.percent)), make("small", {}, "%"));
    },
  };
}
