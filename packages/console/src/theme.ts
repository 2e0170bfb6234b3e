/**
 * The appearance: one accent, one scale of greys, the same radius everywhere. Colours with a
 * meaning are in `styles.css`.
 */
import { createTheme, type MantineColorsTuple } from '@mantine/core';

const teal: MantineColorsTuple = [
  '#edfcf9',
  '#d3f8f1',
  '#a9efe3',
  '#72e0d1',
  '#3bc8ba',
  '#22aca0',
  '#178b83',
  '#0f766e',
  '#115e59',
  '#134e4a',
];

/** Greys with a tint of the accent: the surfaces of the dark theme. */
const dark: MantineColorsTuple = [
  '#e6eaea',
  '#b9c1c2',
  '#94a0a2',
  '#5f6b6e',
  '#38434a',
  '#29333a',
  '#1d262c',
  '#151d22',
  '#10171b',
  '#0a0f12',
];

export const theme = createTheme({
  primaryColor: 'teal',
  primaryShade: { light: 7, dark: 7 },
  colors: { teal, dark },
  // The system's own fonts, which need no download.
  fontFamily:
    'ui-sans-serif, system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", ' +
    '"Noto Sans", sans-serif',
  fontFamilyMonospace:
    'ui-monospace, "SF Mono", "JetBrains Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace',
  headings: { fontWeight: '620' },
  defaultRadius: 'md',
  cursorType: 'pointer',
  focusRing: 'auto',
  respectReducedMotion: true,
  components: {
    Tooltip: {
      defaultProps: {
        multiline: true,
        maw: 340,
        withArrow: true,
        events: { hover: true, focus: true, touch: true },
      },
    },
    Modal: {
      defaultProps: {
        centered: true,
        radius: 'lg',
        overlayProps: { backgroundOpacity: 0.5, blur: 2 },
      },
    },
  },
});
