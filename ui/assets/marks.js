// What the style asks about parts of the page is said on its root, before they are painted: data-side, what the bar at
// the side holds ("full" or "empty"; without one, nothing is said), and data-foot, that the bar at the foot has menus.
// data-filtered, said of a page that will have a bar at its side, goes as that comes or another page is opened.
{
  const begun = location.pathname, said = document.documentElement.dataset;
  const say = (name, what) => {
    if (what === undefined) delete said[name];
    else if (said[name] !== what) said[name] = what;
  };
  const part = name => document.querySelector(`[data-testid="${name}"]`);
  const within = (whole, name) => [...whole?.children ?? []].find(one => one.dataset.testid === name);
  // Both wholes stand before all that pages are made of, so that they are found at once, however much that is.
  const look = () => {
    const side = within(part("stAppViewContainer"), "stSidebar"), foot = within(part("stMain"), "stBottom");
    say("side", side && (side.querySelector("nav, .stElementContainer") ? "full" : "empty"));
    say("foot", foot?.querySelector(".st-key-only_keys") ? "menus" : undefined);
    if (side || location.pathname !== begun) say("filtered");
  };
  new MutationObserver(look).observe(document, { childList: true, subtree: true });
}
