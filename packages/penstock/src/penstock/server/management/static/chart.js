// Line charts of the last minute, as SVG.
import { h, s, number } from "/static/dom.js";

const HEIGHT = 190, LEFT = 66, RIGHT = 10, TOP = 10, BOTTOM = 22, SECONDS = 60;

// A round number not below `value`: the top of the scale.
function ceiling(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 4, 5, 10].map(step => step * power).find(step => step >= value);
}

export function chart(names, format = number) {
  const picture = s("svg", { class: "chart", role: "img", "aria-label": names.join(", ") });
  const figures = names.map(() => h("b", null, "–"));
  const legend = h("div", { class: "legend" }, names.map((name, n) => h("span", null, h("i", { class: `c${n + 1}` }), name, " ", figures[n])));
  // Each line is a list of [milliseconds, value], the oldest first.
  function show(lines, now = Date.now()) {
    const width = picture.clientWidth || 480;
    const top = ceiling(Math.max(1, ...lines.flat().map(point => point[1])));
    const x = at => LEFT + (width - LEFT - RIGHT) * (1 - (now - at) / 1000 / SECONDS);
    const y = value => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top);
    const rules = [0, .25, .5, .75, 1].map(share => [
      s("line", { class: "rule", x1: LEFT, x2: width - RIGHT, y1: y(top * share), y2: y(top * share) }),
      s("text", { x: LEFT - 7, y: y(top * share) + 4, "text-anchor": "end" }, format(top * share))]);
    const ticks = [60, 45, 30, 15, 0].map(ago => s("text", { x: x(now - ago * 1000), y: HEIGHT - 5, "text-anchor": ago ? "middle" : "end" }, ago ? `−${ago} s` : "now"));
    const paths = lines.map((points, n) => {
      const seen = points.filter(([at]) => now - at <= SECONDS * 1000);
      if (seen.length < 2) return [];
      const line = seen.map(([at, value], i) => `${i ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("");
      const closed = `${line}L${x(seen.at(-1)[0]).toFixed(1)} ${y(0)}L${x(seen[0][0]).toFixed(1)} ${y(0)}Z`;
      return [s("path", { class: `area c${n + 1}`, d: closed }), s("path", { class: `c${n + 1}`, d: line })];
    });
    picture.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    picture.replaceChildren(...[rules, ticks, paths].flat(Infinity));
    lines.forEach((points, n) => { figures[n].textContent = points.length ? format(points.at(-1)[1]) : "–"; });
    picture.setAttribute("aria-label", names.map((name, n) => `${name} ${figures[n].textContent}`).join(", "));
  }
  return { element: h("div", null, legend, picture), show };
}

// The rate between samples of a counter, as RabbitMQ's API lists them: the newest first.
export const rates = details => {
  const samples = [...(details?.samples || [])].reverse();
  return samples.slice(1).map(({ sample, timestamp }, n) =>
    [timestamp, Math.max(0, (sample - samples[n].sample) / Math.max(1, timestamp - samples[n].timestamp) * 1000)]);
};

// A gauge that is watched: its values of the last minute.
export function history(count) {
  const lines = Array.from({ length: count }, () => []);
  return values => {
    const now = Date.now();
    lines.forEach((line, n) => {
      line.push([now, values[n]]);
      while (line.length > 2 && now - line[0][0] > (SECONDS + 5) * 1000) line.shift();
    });
    return lines;
  };
}
