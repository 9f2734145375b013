// Where nodes of a graph stand, in a square from -1 to 1. Deterministic: a picture that is drawn
// again looks the same. `edges` are pairs of names.

const turn = share => [Math.sin(2 * Math.PI * share), -Math.cos(2 * Math.PI * share)];

// Stretch over the whole square.
function spread(places) {
  const fit = axis => {
    const values = places.map(place => place[axis]), least = Math.min(...values), wide = Math.max(...values) - least;
    return value => wide < 0.01 ? 0 : (value - least) / wide * 2 - 1;
  };
  const [x, y] = [fit(0), fit(1)];
  return places.map(place => [x(place[0]), y(place[1])]);
}

// Rows of names by their distance from the first name of each component.
function levels(names, edges) {
  const depth = new Map(), rows = [];
  for (const root of names) {
    if (depth.has(root)) continue;
    depth.set(root, 0);
    for (const waiting = [root]; waiting.length;) {
      const here = waiting.shift();
      (rows[depth.get(here)] ||= []).push(here);
      for (const pair of edges) if (pair.includes(here)) {
        const other = pair.find(one => one !== here);
        if (!depth.has(other)) { depth.set(other, depth.get(here) + 1); waiting.push(other); }
      }
    }
  }
  return { depth, rows };
}

// Lengths of shortest paths; nodes of other components are a little farther than any path.
function distances(names, edges) {
  const at = new Map(names.map((name, n) => [name, n])), far = names.map(() => names.map(() => Infinity));
  names.forEach((_, n) => { far[n][n] = 0; });
  for (const [a, b] of edges) far[at.get(a)][at.get(b)] = far[at.get(b)][at.get(a)] = 1;
  for (let k = 0; k < names.length; k++) for (let i = 0; i < names.length; i++) for (let j = 0; j < names.length; j++)
    far[i][j] = Math.min(far[i][j], far[i][k] + far[k][j]);
  const most = Math.max(1, ...far.flat().filter(isFinite));
  return far.map(row => row.map(value => isFinite(value) ? value : most + 1));
}

const circle = names => names.map((_, n) => turn(n / names.length));

function grid(names) {
  const side = Math.ceil(Math.sqrt(names.length)), step = 2 / Math.max(1, side - 1);
  return names.map((_, n) => [n % side * step - 1, Math.floor(n / side) * step - 1]);
}

function tree(names, edges) {
  const { depth, rows } = levels(names, edges);
  return names.map(name => {
    const row = rows[depth.get(name)];
    return [(row.indexOf(name) + 1) / (row.length + 1) * 2 - 1, depth.get(name) / Math.max(1, rows.length - 1) * 2 - 1];
  });
}

// The broker with most links in the middle, the others on rings by their distance.
function radial(names, edges) {
  const links = name => edges.filter(pair => pair.includes(name)).length;
  const ordered = [...names].sort((a, b) => links(b) - links(a));
  const { depth, rows } = levels(ordered, edges), single = rows[0].length === 1;
  return names.map(name => {
    const level = depth.get(name), row = rows[level], radius = single ? level / Math.max(1, rows.length - 1) : (level + 1) / rows.length;
    const [x, y] = turn((row.indexOf(name) + level * .37) / row.length);
    return [x * radius, y * radius];
  });
}

// Fruchterman and Reingold: nodes repel each other, links attract; movement cools down.
function spring(names, edges) {
  const off = circle(names), at = tree(names, edges).map(([x, y], n) => [x + .1 * off[n][0], y + .1 * off[n][1]]);
  const linked = names.map(a => names.map(b => edges.some(pair => pair.includes(a) && pair.includes(b) && a !== b)));
  for (let heat = .2; heat > .002; heat *= .97) {
    const moves = at.map(([x, y], i) => at.reduce(([dx, dy], [a, b], j) => {
      if (i === j) return [dx, dy];
      const far = Math.hypot(x - a, y - b) || .01, push = .15 / far / far - (linked[i][j] ? far : 0);
      return [dx + (x - a) / far * push, dy + (y - b) / far * push];
    }, [0, 0]));
    moves.forEach(([x, y], i) => {
      const much = Math.hypot(x, y) || 1, step = Math.min(heat, much);
      at[i] = [at[i][0] + x / much * step, at[i][1] + y / much * step];
    });
  }
  return spread(at);
}

// Kamada and Kawai, by stress majorization: distances in the picture are lengths of paths.
function stress(names, edges) {
  const far = distances(names, edges);
  let at = circle(names);
  for (let round = 0; round < 200; round++) {
    at = at.map(([x, y], i) => {
      let sumX = 0, sumY = 0, weights = 0;
      at.forEach(([a, b], j) => {
        if (i === j) return;
        const weight = 1 / far[i][j] ** 2, length = Math.hypot(x - a, y - b) || .01;
        sumX += weight * (a + far[i][j] * (x - a) / length);
        sumY += weight * (b + far[i][j] * (y - b) / length);
        weights += weight;
      });
      return weights ? [sumX / weights, sumY / weights] : [x, y];
    });
  }
  return spread(at);
}

// Meyer's self-organizing map: random points pull the nearest node and its neighbourhood.
function isom(names, edges) {
  const far = distances(names, edges), at = circle(names).map(([x, y]) => [x / 2, y / 2]);
  let seed = 7;
  const random = () => { seed = seed * 1103515245 + 12345 & 0x7fffffff; return seed / 0x7fffffff * 2 - 1; };
  const rounds = 600 * Math.max(1, Math.ceil(names.length / 10));
  for (let round = 0; round < rounds; round++) {
    const cool = Math.exp(-3 * round / rounds), point = [random(), random()];
    let nearest = 0;
    at.forEach(([x, y], n) => { if (Math.hypot(x - point[0], y - point[1]) < Math.hypot(at[nearest][0] - point[0], at[nearest][1] - point[1])) nearest = n; });
    at.forEach(([x, y], n) => {
      if (far[nearest][n] > 1 + 2 * cool) return;
      const pull = .8 * cool * 2 ** -far[nearest][n];
      at[n] = [x + pull * (point[0] - x), y + pull * (point[1] - y)];
    });
  }
  return spread(at);
}

export const LAYOUTS = { circle, tree, radial, grid, spring, "Kamada–Kawai": stress, "self-organizing": isom };
