import { useEffect, useState, type RefObject } from 'react';

/** The height of a row of the list of services; `services.module.css` has the same. */
export const ROW_PX = 62;
/** Drawn beyond both edges, so that a quick scroll shows no gap. */
const MARGIN_ROWS = 12;

/** Which rows of a list, all of the same height, the window shows: from `first` to before `end`. */
export function useRowsInSight(
  list: RefObject<HTMLElement | null>,
  count: number,
): { first: number; end: number } {
  const [sight, setSight] = useState({ first: 0, end: 60 });
  useEffect(() => {
    const look = (): void => {
      if (list.current === null) return;
      const topRows = -list.current.getBoundingClientRect().top / ROW_PX;
      // In steps, so that most scrolling redraws nothing.
      const first = Math.max(0, Math.floor((topRows - MARGIN_ROWS) / MARGIN_ROWS) * MARGIN_ROWS);
      const end =
        Math.ceil((topRows + window.innerHeight / ROW_PX + MARGIN_ROWS) / MARGIN_ROWS) *
        MARGIN_ROWS;
      setSight((old) => (old.first === first && old.end === end ? old : { first, end }));
    };
    look();
    // When a list becomes short, the window scrolls back a moment later.
    const later = requestAnimationFrame(look);
    window.addEventListener('scroll', look, { passive: true });
    window.addEventListener('resize', look);
    return () => {
      cancelAnimationFrame(later);
      window.removeEventListener('scroll', look);
      window.removeEventListener('resize', look);
    };
  }, [list, count]);
  return sight;
}
