// Keys, buttons, and the beginning of everything.

function listen(view) {
  const search = document.getElementById('search');
  const pointer = new Pointer(view), walk = new Walk(view);
  const arrow = (key) => () => walk.step(key);
  const keys = {
    w: () => view.zoom(0.7, pointer.mouse), s: () => view.zoom(1 / 0.7, pointer.mouse), a: () => view.pan(-0.2), d: () => view.pan(0.2),
    '0': () => view.go(0, meta.length), '[': () => view.nextPoke(-1), ']': () => view.nextPoke(1),
    '{': () => view.nextPoke(-1, true), '}': () => view.nextPoke(1, true),
    f: () => {
      if (view.selected) view.fit(view.spanOf(view.selected));
      else if (view.range) view.fit(view.range);
    },
    r: () => view.setRange([Math.max(Math.floor(view.begin), 0), Math.min(Math.ceil(view.end), meta.length)]),
    t: () => view.drawer.toggle('functions'), g: () => view.drawer.toggle('flames'), b: () => setTheme(document.documentElement.dataset.theme !== 'dark'),
    '/': () => search.focus(), '?': () => view.panel.about(),
    Escape: () => {
      view.setRange(null);
      view.search('');
    },
    ArrowLeft: arrow('ArrowLeft'), ArrowRight: arrow('ArrowRight'), ArrowUp: arrow('ArrowUp'), ArrowDown: arrow('ArrowDown'),
    PageUp: () => walk.track(-1), PageDown: () => walk.track(1), n: () => view.nextFound(1), N: () => view.nextFound(-1),
  };
  document.addEventListener('keydown', (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.target === search) {
      if (e.key === 'Enter') {
        lookFor();
        view.nextFound(e.shiftKey ? -1 : 1);
      }
      if (e.key === 'Escape') {
        view.search('');
        view.canvas.focus();
      }
      return;
    }
    // Where text scrolls, these keys scroll it.
    const scrolls = ['ArrowUp', 'ArrowDown', 'PageUp', 'PageDown'].includes(e.key);
    if (scrolls && (view.panel.node.contains(e.target) || view.drawer.node.contains(e.target))) return;
    const action = keys[e.key] || keys[e.key.toLowerCase()];
    if (!action) return;
    e.preventDefault();
    action();
  });
  // What is typed, once there is a pause or it is to be gone to.
  let timer = 0;
  function lookFor() {
    if (timer) view.search(search.value);
    clearTimeout(timer);
    timer = 0;
  }
  search.addEventListener('input', () => {
    clearTimeout(timer);
    timer = setTimeout(lookFor, 80);
  });

  const click = (id, action) => { document.getElementById(id).onclick = action; };
  click('fit', keys['0']);
  click('help', keys['?']);
  click('dark', keys.b);
  click('table', keys.t);
  click('flames', keys.g);
  click('next', () => view.nextFound(1));
  click('previous', () => view.nextFound(-1));
  const setTheme = (dark) => {
    document.documentElement.dataset.theme = dark ? 'dark' : 'light';
    view.paint();
    view.drawer.refresh();
    view.redraw();
  };
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', (e) => setTheme(e.matches));
  new ResizeObserver(() => view.redraw()).observe(view.canvas);
}

// Set when everything has been read and drawn.
let view;

async function begin() {
  const data = await readAll();
  document.title = `asof: ${meta.title}`;
  document.getElementById('title').textContent = document.getElementById('title').title = meta.title;
  const made = new View(data);
  made.drawer = new Drawer(made);
  made.matches = new Matches([], new Set());
  // Many threads would push everything else out of the picture.
  for (const t of data.tracks.filter((t) => t.kind === 'thread').slice(6)) made.closed.add('thread' + t.id);
  made.makeLanes();
  new Outline(made);
  listen(made);
  made.panel.about();
  made.draw(true);
  const place = new Place(made);
  place.open();
  view = made;
}
begin().catch((e) => { document.getElementById('panel').textContent = `This page cannot be read: ${e.message}`; });
