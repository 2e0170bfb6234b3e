// Runs before anything is painted: the chosen theme, or the system's, without a flash of the other.
let chosen: string | null = null;
try {
  chosen = localStorage.getItem('howdah-theme');
} catch {
  // no storage: the system's
}
const dark =
  chosen === 'dark' || (chosen !== 'light' && matchMedia('(prefers-color-scheme: dark)').matches);
document.documentElement.dataset['mantineColorScheme'] = dark ? 'dark' : 'light';
