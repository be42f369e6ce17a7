// Keys, mouse, and the beginning of everything.

function listen(view) {
  const canvas = view.canvas;
  const search = document.getElementById('search');
  let mouse = kLabels + 200, drag = null;

  const keys = {
    w: () => view.zoom(0.7, mouse), s: () => view.zoom(1 / 0.7, mouse), a: () => view.pan(-0.2), d: () => view.pan(0.2),
    '0': () => view.go(0, meta.length), '[': () => view.nextPoke(-1), ']': () => view.nextPoke(1),
    f: () => {
      if (!view.selected) return;
      const [begin, end] = view.spanOf(view.selected);
      const margin = Math.max((end - begin) * 0.1, 20);
      view.go(begin - margin, end + margin);
    },
    '/': () => search.focus(), '?': () => view.panel.about(), Escape: () => view.search(''),
    ArrowLeft: () => view.pan(-0.2), ArrowRight: () => view.pan(0.2),
    n: () => view.nextFound(1), N: () => view.nextFound(-1),
  };
  document.addEventListener('keydown', (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.target === search) {
      if (e.key === 'Enter') view.nextFound(e.shiftKey ? -1 : 1);
      if (e.key === 'Escape') {
        view.search('');
        search.blur();
      }
      return;
    }
    const action = keys[e.key] || keys[e.key.toLowerCase()];
    if (!action) return;
    e.preventDefault();
    action();
  });
  search.addEventListener('input', () => view.search(search.value));

  canvas.addEventListener('wheel', (e) => {
    e.preventDefault();
    if (e.ctrlKey) view.zoom(Math.exp(e.deltaY * 0.004), e.offsetX);
    else if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) view.pan((e.deltaX || e.deltaY) / view.width);
    else {
      view.scroll += e.deltaY;
      view.redraw();
    }
  }, {passive: false});

  canvas.addEventListener('pointerdown', (e) => {
    drag = {x: e.offsetX, y: e.offsetY, begin: view.wantBegin, end: view.wantEnd, scroll: view.scroll, moved: false};
    canvas.setPointerCapture(e.pointerId);
  });
  canvas.addEventListener('pointermove', (e) => {
    mouse = e.offsetX;
    document.getElementById('under').textContent = mouse > kLabels ? `at ${clockText(view.time(mouse))}` : '';
    if (!drag) {
      canvas.style.cursor = mouse > kLabels && view.itemAt(e.offsetX, e.offsetY) ? 'pointer' : 'default';
      return;
    }
    if (Math.hypot(e.offsetX - drag.x, e.offsetY - drag.y) > 3) drag.moved = true;
    if (!drag.moved) return;
    const by = (drag.x - e.offsetX) / view.scale;
    view.scroll = drag.scroll + drag.y - e.offsetY;
    view.go(drag.begin + by, drag.end + by, true);
  });
  canvas.addEventListener('pointerup', (e) => {
    const moved = drag && drag.moved;
    drag = null;
    if (moved) return;
    const lane = view.laneAt(e.offsetY);
    if (lane && lane.kind === 'group') {
      if (!view.closed.delete(lane.key)) view.closed.add(lane.key);
      view.makeLanes();
      view.redraw();
      return;
    }
    view.select(view.itemAt(e.offsetX, e.offsetY));
  });

  const move = (e) => {
    if (!e.buttons) return;
    const at = e.offsetX / view.overview.clientWidth * meta.length;
    const half = (view.wantEnd - view.wantBegin) / 2;
    view.go(at - half, at + half, true);
  };
  view.overview.addEventListener('pointerdown', move);
  view.overview.addEventListener('pointermove', move);

  document.getElementById('fit').onclick = keys['0'];
  document.getElementById('help').onclick = keys['?'];
  document.getElementById('next').onclick = () => view.nextFound(1);
  document.getElementById('previous').onclick = () => view.nextFound(-1);
  new ResizeObserver(() => view.redraw()).observe(canvas);
}

document.title = `asof: ${meta.title}`;
document.getElementById('title').textContent = meta.title;
const view = new View(readAll());
// Many threads would push everything else out of the picture.
for (const t of view.data.tracks.filter((t) => t.kind === 'thread').slice(6)) view.closed.add('thread' + t.id);
view.makeLanes();
listen(view);
view.panel.about();
view.draw();
