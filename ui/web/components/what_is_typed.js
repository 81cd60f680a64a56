// Streamlit offers what was typed and is none of a list's options as “Add: …”. Where nothing is added, but looked for,
// it says so instead.
export default function ({ data }) {
  const theirs = "Add: ";
  const say = () => {
    for (const option of document.querySelectorAll('[role="option"]')) {
      const words = document.createTreeWalker(option, NodeFilter.SHOW_TEXT).nextNode();
      if (words?.data.startsWith(theirs)) words.data = `${data.words} ${words.data.slice(theirs.length)}`;
    }
  };
  const watching = new MutationObserver(say);
  watching.observe(document.body, { childList: true, subtree: true, characterData: true });
  say();
  return () => watching.disconnect();
}
