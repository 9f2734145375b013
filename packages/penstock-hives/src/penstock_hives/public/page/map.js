// Places on a map. Tiles come from the server that the installation names; without one the land of the
// world is drawn from a file that is shipped.

import { ask } from "./api.js";
import { leaflet as L } from "./leaflet.js";
import { button, link, main, make, notice } from "./elements.js";
import { count, t } from "./language.js";
import { figures, seed, watch } from "./live.js";
import { choice } from "./places.js";
import { isClosed, levelOf, says, sentence, stale } from "./words.js";

const WHOLE_WORLD = "-180,-85,180,85";
const CELL = 46; // places that are nearer than that, in pixels, are one marker
let held; // the map that is shown

export async function showMap(wanted, signal) {
  const place = make("div", { class: "map", role: "region", "aria-label": t("Map of places") });
  const locate = button(t("Where am I?"), () => navigator.geolocation?.getCurrentPosition(({ coords }) => map.setView([coords.latitude, coords.longitude], 14), () => notice(t("Where you are is not known."))), "chip");
  main.replaceChildren(make("div", { class: "row between" }, make("h1", {}, t("Map")), locate), place);
  if (!document.querySelector("#leaflet-style")) {
    await new Promise((done) => document.head.append(make("link", { id: "leaflet-style", rel: "stylesheet", href: "/leaflet.css", onload: done, onerror: done })));
  }
  const [settings, features] = await Promise.all([fetch("/page.json", { signal }).then((answer) => answer.json()), ask(`/map?bbox=${WHOLE_WORLD}&limit=500`, signal)]);
  held?.remove();
  const map = L.map(place, { zoomControl: true, worldCopyJump: true, maxZoom: 18, minZoom: 1, attributionControl: Boolean(settings.tiles), zoomSnap: 0.5 });
  held = map;
  signal.addEventListener("abort", () => { if (held === map) { map.remove(); held = undefined; } });
  if (settings.tiles) L.tileLayer(settings.tiles, { attribution: text(settings.attribution), maxZoom: 19 }).addTo(map);
  else drawLand(map, signal).catch(() => {}); // places are shown without it, too; or the map was left
  const places = features.features.map(({ id, geometry, properties }) => ({ ...properties, id, at: L.latLng(geometry.coordinates[1], geometry.coordinates[0]) }));
  for (const hive of places) seed(hive.occupancy);
  const chosen = places.find((hive) => hive.id === wanted);
  if (chosen) map.setView(chosen.at, 15);
  else if (choice.near) map.setView(choice.near, 12);
  else if (places.length) map.fitBounds(L.latLngBounds(places.map((hive) => hive.at)).pad(0.15), { maxZoom: 14 });
  else map.setView([20, 0], 2);
  const layer = L.layerGroup().addTo(map);
  const draw = () => drawPlaces(map, layer, places);
  map.on("zoomend moveend", draw);
  draw();
  if (chosen) openPopup(map, chosen);
}

/** Attribution is text of the settings: it is not parsed as HTML. */
const text = (words) => make("span", {}, words ?? "").innerHTML;

async function drawLand(map, signal) {
  const rings = await fetch("/world.json", { signal }).then((answer) => answer.json());
  const shapes = rings.map((ring) => {
    let lat = 0, lon = 0; // differences, in fiftieths of a degree
    return Array.from({ length: ring.length / 2 }, (_, n) => [(lat += ring[2 * n]) / 50, (lon += ring[2 * n + 1]) / 50]);
  });
  if (held === map) L.polygon(shapes.map((shape) => [shape]), { className: "land", interactive: false, weight: 1, smoothFactor: 0.5 }).addTo(map);
}

/** Groups of places that would cover each other. */
function groups(map, places) {
  const found = [];
  for (const hive of places) {
    const point = map.latLngToLayerPoint(hive.at);
    const near = found.find((group) => group.point.distanceTo(point) < CELL);
    if (near) near.hives.push(hive); else found.push({ point, hives: [hive] });
  }
  return found;
}

function drawPlaces(map, layer, places) {
  layer.clearLayers();
  const box = map.getBounds().pad(0.2);
  for (const { hives } of groups(map, places.filter((hive) => box.contains(hive.at)))) {
    const one = hives.length === 1 ? hives[0] : null;
    const centre = one ? one.at : L.latLngBounds(hives.map((hive) => hive.at)).getCenter();
    const mark = make("div", { class: one ? "pin" : "pin many" });
    const label = one ? null : count(hives.length, "{n} place", "{n} places");
    const marker = L.marker(centre, { icon: L.divIcon({ html: mark, className: "", iconSize: [44, 44] }), keyboard: true, alt: label ?? one.name, title: label ?? one.name });
    if (one) {
      const show = (figure) => {
        mark.dataset.level = levelOf(figure, one);
        mark.textContent = isClosed(one) ? "–" : stale(figure) ? "?" : figure.percent === null ? figure.occupancy : `${Math.round(figure.percent)}%`;
      };
      show(figures.get(one.id) ?? one.occupancy);
      watch(one.id, show);
      marker.on("click keypress", () => openPopup(map, one));
    } else {
      mark.textContent = hives.length;
      marker.on("click keypress", () => map.fitBounds(L.latLngBounds(hives.map((hive) => hive.at)).pad(0.2), { maxZoom: Math.min(18, Math.max(15, map.getZoom() + 3)) }));
    }
    layer.addLayer(marker);
    const element = marker.getElement();
    element?.setAttribute("aria-label", label ?? sentenceOf(one));
    element?.setAttribute("role", "button");
  }
}

const sentenceOf = (hive) => `${hive.name}. ${sentence(figures.get(hive.id) ?? hive.occupancy, hive)}`;

function openPopup(map, hive) {
  const figure = figures.get(hive.id) ?? hive.occupancy;
  const body = make("div", { class: "popup", "data-level": levelOf(figure, hive) }, make("h2", {}, link(`#/hive/${hive.id}`, hive.name)), make("p", { class: "soft small" }, t(hive.type_name)), make("p", { class: "says" }, says(figure, hive)));
  L.popup({ offset: [0, -14] }).setLatLng(hive.at).setContent(body).openOn(map);
}
