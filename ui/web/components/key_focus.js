// After a click by pointer within the named part of the page its control lets go of the keyboard, so that Space reaches
// the shortcut and does not press the control once more. Who gets there by Tab keeps the focus.
export default function ({ data }) {
  const letGo = (event) => {
    const part = event.target instanceof Element && event.target.closest(`.st-key-${data.part}`);
    if (!part || event.detail === 0) return;
    setTimeout(() => {
      const held = document.activeElement;
      if (part.contains(held)) held.blur();
    });
  };
  document.addEventListener("click", letGo, true);
  return () => document.removeEventListener("click", letGo, true);
}
