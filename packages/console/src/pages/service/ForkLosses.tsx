/** The parts of its service that a fork would not have. */
import type { ForkStrategy } from '@howdah/contract/values';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { forkLossesQuery, type Service } from '../../api.ts';
import { ErrorNotice } from '../../components/ui.tsx';
import { useMe } from '../../session.ts';
import classes from './service.module.css';

/** The list is asked for when it is opened. */
export function ForkLosses({
  service: { service_id: id },
  strategy,
  version,
}: {
  service: Service;
  strategy: ForkStrategy;
  version: string;
}) {
  const { project } = useMe();
  const [isOpen, setIsOpen] = useState(false);
  // A fork of a moment has the same as one of a snapshot.
  const request = {
    fork_strategy: strategy === 'PITR' ? ('LAST_SNAPSHOT' as const) : strategy,
    ...(version === '' || strategy === 'PITR' ? {} : { pg_version: version }),
  };
  const { data, error } = useQuery({
    ...forkLossesQuery(project.id, id, request),
    enabled: isOpen,
  });
  return (
    <details className={classes.hint} onToggle={(event) => setIsOpen(event.currentTarget.open)}>
      <summary>What the fork does not have</summary>
      <ErrorNotice error={error} />
      <ul>
        {data?.map((line) => (
          <li key={line}>{line}</li>
        ))}
      </ul>
    </details>
  );
}
