// Adds a button to each snippet that copies it. Without scripts, the snippets can be selected by hand.

const said = document.createElement('p');
said.className = 'unseen';
said.setAttribute('role', 'status');
document.querySelector('main')?.append(said);

for (const snippet of document.querySelectorAll('figure')) {
  const { name = '' } = snippet.dataset;
  const label = document.createElement('span');
  label.className = 'unseen';
  label.textContent = ` ${name}`;
  const word = document.createTextNode('Copy');
  const button = document.createElement('button');
  button.type = 'button';
  button.className = 'second';
  button.append(word, label);
  const code = snippet.querySelector('pre code') ?? snippet;
  const say = (/** @type {boolean} */ isCopied) => {
    word.data = isCopied ? 'Copied' : 'Press Ctrl+C';
    said.textContent = isCopied ? `Copied ${name}.` : `Selected ${name}. Press Ctrl+C to copy.`;
    setTimeout(() => (word.data = 'Copy'), 2_000);
  };
  button.addEventListener('click', () => void copy(code).then(say));
  snippet.querySelector('figcaption')?.append(button);
}

/**
 * Copies the text of an element, or selects it where browsers do not allow that: without TLS, except on loopback.
 * @param {Element} element
 */
async function copy(element) {
  try {
    await navigator.clipboard.writeText(element.textContent ?? '');
    return true;
  } catch {
    getSelection()?.selectAllChildren(element);
    return false;
  }
}
