import { Check, TriangleAlert, X } from 'lucide-react';
import type { ReactNode } from 'react';
import type { Finding } from '../api-project.ts';
import ui from './project.module.css';

const LOOK: Record<Finding['state'], ReactNode> = {
  ok: <Check size={17} color="var(--good)" aria-label="fine" />,
  note: <TriangleAlert size={17} color="var(--warn)" aria-label="a note" />,
  missing: <X size={17} color="var(--bad)" aria-label="missing" />,
};

/** The findings on a machine or in a cluster, with the remedy for each. */
export function Findings({ findings }: { findings: readonly Finding[] }) {
  return (
    <ul className={ui.findings}>
      {findings.map(({ what, state, found, remedy }) => (
        <li key={`${what} ${found}`} className={ui.finding}>
          {LOOK[state]}
          <strong>{what}</strong>
          <span>
            {found}
            {remedy !== undefined && <span className={ui.remedy}>{remedy}</span>}
          </span>
        </li>
      ))}
    </ul>
  );
}
