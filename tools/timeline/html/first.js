// Before anything is shown, so that a dark page does not begin white.
if (matchMedia('(prefers-color-scheme: dark)').matches) document.documentElement.dataset.theme = 'dark';
