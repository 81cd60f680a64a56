// The field in the named part of the page takes the keyboard as soon as it is there: once, when its part is opened.
const FRAMES = 60; // a dialog is drawn, and takes the focus for itself, some frames after this

export default function ({ data, parentElement }) {
  const host = parentElement.host ?? parentElement;
  if (host.dataset.focused) return;
  host.dataset.focused = "1";
  let left = FRAMES;
  const take = () => {
    const field = document.querySelector(`.st-key-${data.part} input`);
    if (field && document.activeElement !== field) field.focus();
    if (--left > 0 && document.activeElement !== field) requestAnimationFrame(take);
  };
  setTimeout(take, 150);
}
