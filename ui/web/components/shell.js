// Installed once, on the window: it outlives the pages, their runs and this component's own place on the page.
const DRAWER_PX = 768; // up to this width Streamlit lays the menu over the page
const LOOK_MS = 100, LOOKS = 100; // how often, and how many times, a new page looks for a drawer that opened by itself

// What is pushed without an act of the reader's since the last entry belongs to that entry.
function oneActOneStep() {
  let acted = false;
  for (const act of ["pointerdown", "click", "keydown"]) {
    window.addEventListener(act, event => { acted ||= event.isTrusted; }, true);
  }
  window.addEventListener("popstate", () => { acted = false; }, true);
  const push = history.pushState.bind(history);
  history.pushState = (...entry) => {
    if (acted) push(...entry); else history.replaceState(...entry);
    acted = false;
  };
}

// Streamlit lets Esc through to the page's shortcuts from within a field, as no other key. They listen on the document.
function escLeavesTheField() {
  document.body.addEventListener("keydown", event => {
    const field = event.composedPath()[0];
    if (event.key !== "Escape" || !field.matches?.("input, textarea")) return;
    event.stopPropagation();
    field.blur();
  });
}

// Esc closes a help text that is open, which Streamlit does first of all; the page's shortcut would leave the page too.
function escClosesTheHelp() {
  let open = false;
  window.addEventListener("keydown", () => { open = !!document.querySelector('[data-testid="stTooltipContent"]'); }, true);
  document.body.addEventListener("keydown", event => {
    if (event.key === "Escape" && open) event.stopPropagation();
  });
}

function closeDrawer() {
  if (window.innerWidth > DRAWER_PX) return;
  const open = '[data-testid="stSidebar"][data-collapsed="false"] [data-testid="stSidebarCollapseButton"] button';
  document.querySelector(open)?.click();
}

// Streamlit closes it only for browsers that call themselves mobile, and opens it again where it was last left open.
function drawerCloses() {
  document.body.addEventListener("click", event => {
    if (event.target.closest?.('[data-testid="stSidebarNavLink"]')) setTimeout(closeDrawer);
  });
  // On a busy machine the menu is drawn, and opened, well after this; the reader's first act ends the looking.
  let looks = 0;
  const looking = setInterval(() => { closeDrawer(); if (++looks >= LOOKS) clearInterval(looking); }, LOOK_MS);
  for (const act of ["pointerdown", "keydown"]) {
    window.addEventListener(act, () => clearInterval(looking), { capture: true, once: true });
  }
  closeDrawer();
}

// Once drawn, Streamlit keeps the bar at the side on pages that put nothing into it, and with it the name of the app,
// which then shows nowhere while the menu moves. Shut, the name is back in the bar above; what comes to put something
// into it finds it open as it was left.
function emptyBarShuts() {
  const said = document.documentElement.dataset; // by marks.js
  let shut = false;
  const look = () => {
    if (!said.side || window.innerWidth <= DRAWER_PX) return;
    const bar = document.querySelector('[data-testid="stSidebar"]');
    const open = bar.dataset.collapsed === "false", full = said.side === "full";
    if (open && !full) {
      shut = true;
      bar.querySelector('[data-testid="stSidebarCollapseButton"] button')?.click();
    } else if (!open && full && shut) {
      shut = false;
      document.querySelector('[data-testid="stExpandSidebarButton"]')?.click();
    }
  };
  let due = false;
  new MutationObserver(() => {
    if (due) return;
    due = true;
    setTimeout(() => { due = false; look(); }, 50);
  }).observe(document.body, { childList: true, subtree: true });
}

// A link in a table opens a tab of its own. One of ours leads on in this tab, as every other link of ours, unless Ctrl,
// Shift or the middle button asks for another; the page goes there as it goes back, with all that the tab remembers.
function tableLinksStay() {
  let apart = false;
  for (const act of ["pointerdown", "pointerup", "keydown"]) {
    window.addEventListener(act, event => {
      apart = event.ctrlKey || event.metaKey || event.shiftKey || event.button === 1;
    }, true);
  }
  const open = window.open.bind(window);
  window.open = (address, ...how) => {
    const to = new URL(address, location.href);
    if (apart || to.origin !== location.origin) return open(address, ...how);
    history.pushState(null, "", to);
    window.dispatchEvent(new PopStateEvent("popstate"));
    return null;
  };
}

export default function () {
  if (window.trinityShell) return;
  window.trinityShell = true;
  oneActOneStep();
  escLeavesTheField();
  escClosesTheHelp();
  tableLinksStay();
  drawerCloses();
  emptyBarShuts();
}
