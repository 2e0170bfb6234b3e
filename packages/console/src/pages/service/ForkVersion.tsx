/** The major version of PostgreSQL of a fork, where the region has newer ones than the parent's. */
import { NativeSelect } from '@mantine/core';
import type { Service } from '../../api.ts';
import { useNewerVersions } from '../../live.ts';

export function ForkVersion({
  service,
  version,
  onChange,
}: {
  service: Service;
  /** Empty: that of the parent. */
  version: string;
  onChange: (version: string) => void;
}) {
  const newer = useNewerVersions(service);
  if (newer.length === 0) return null;
  return (
    <NativeSelect
      label="PostgreSQL version"
      description="A newer one gets the data by a dump, which takes longer."
      value={version}
      onChange={(event) => onChange(event.currentTarget.value)}
      data={[
        { value: '', label: `${service.pg_version}, as this service` },
        ...newer.map(({ pg_version: major, version: full }) => ({
          value: major,
          label: full ?? major,
        })),
      ]}
      maw={420}
    />
  );
}
