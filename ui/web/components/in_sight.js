// Scrolls once for everything that is newly shown, and not at all where its beginning is well in sight already.
const SEEN = new WeakMap();

export default function ({ data, parentElement }) {
  const place = (parentElement.host ?? parentElement).closest(`.st-key-${data.container}`);
  if (!place || SEEN.get(place) === data.what) return;
  SEEN.set(place, data.what);
  const { top } = place.getBoundingClientRect();
  if (top >= 60 && top <= window.innerHeight / 2) return;
  place.style.scrollMarginTop = "40vh"; // what was clicked stays in sight above it
  place.scrollIntoView({ block: "start" });
}
