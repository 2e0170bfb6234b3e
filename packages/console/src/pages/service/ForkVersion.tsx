/** The major version of PostgreSQL of a fork, where the region has newer ones than the parent's. */
import { NativeSelect } from '@mantine/core';
import type { Service } from '../../api.ts';
import { useFindRegion } from '../../live.ts';

export function ForkVersion({
  service: { pg_version: own, region_code: region, service_type: type },
  version,
  onChange,
}: {
  service: Service;
  /** Empty: that of the parent. */
  version: string;
  onChange: (version: string) => void;
}) {
  const findRegion = useFindRegion();
  const offer = findRegion(region)?.service_types.find(({ service_type }) => service_type === type);
  const newer = (offer?.versions ?? []).filter(
    ({ available, pg_version: major }) => available && own !== undefined && major > own,
  );
  if (newer.length === 0) return null;
  return (
    <NativeSelect
      label="PostgreSQL version"
      description="A newer one gets the data by a dump, which takes longer."
      value={version}
      onChange={(event) => onChange(event.currentTarget.value)}
      data={[
        { value: '', label: `${own}, as this service` },
        ...newer.map(({ pg_version: major, version: full }) => ({
          value: major,
          label: full ?? major,
        })),
      ]}
      maw={420}
    />
  );
}
