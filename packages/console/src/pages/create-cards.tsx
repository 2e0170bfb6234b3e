/** Cards of the form that creates a service. */
import { NativeSelect } from '@mantine/core';
import { DEFAULT_SIZE, defaultStorageGb, SERVICE_SIZES } from '@howdah/contract/sizes';
import type { ServiceType } from '@howdah/contract/types';
import type { Region } from '../api.ts';
import { StorageInput } from '../components/Storage.tsx';
import { Card } from '../components/ui.tsx';

/** Shown where there are several regions. */
export function RegionCard({
  regions,
  value,
  onChange,
}: {
  regions: readonly Region[];
  value: string;
  onChange: (region: Region) => void;
}) {
  return (
    <Card title="Region" hint="a service stays in its region, and so do its forks">
      <NativeSelect
        aria-label="Region"
        value={value}
        onChange={(event) => {
          const chosen = regions.find(({ code }) => code === event.currentTarget.value);
          if (chosen !== undefined) onChange(chosen);
        }}
        data={regions.map(({ code, engine }) => ({ value: code, label: `${code} (${engine})` }))}
      />
    </Card>
  );
}

/** Shown where there is a choice. */
export function VersionCard({
  region,
  type,
  version,
  onChange,
}: {
  region: Region;
  type: ServiceType;
  version: string;
  onChange: (version: string) => void;
}) {
  const offer = region.service_types.find(({ service_type }) => service_type === type);
  const versions = offer?.versions.filter(({ available }) => available) ?? [];
  if (versions.length < 2) return null;
  return (
    <Card
      title="PostgreSQL"
      hint="read replicas have the same version, forks the same or a newer one"
    >
      <NativeSelect
        aria-label="PostgreSQL version"
        value={version}
        onChange={(event) => onChange(event.currentTarget.value)}
        data={[
          { value: '', label: `Default (${offer?.version ?? ''})` },
          ...versions.map(({ pg_version: major, version: full }) => ({
            value: major,
            label: full ?? major,
          })),
        ]}
      />
    </Card>
  );
}

export function StorageCard({
  size,
  storage,
  onChange,
}: {
  size: string;
  storage: number | null;
  onChange: (storage: number | null) => void;
}) {
  const fallback = defaultStorageGb(
    size === 'shared'
      ? size
      : (SERVICE_SIZES.find(({ cpuMillis }) => String(cpuMillis) === size) ?? DEFAULT_SIZE),
  );
  return (
    <Card title="Storage" hint="for each server; a change needs no restart">
      <StorageInput
        aria-label="Storage in GB"
        value={storage ?? fallback}
        onChange={(gigabytes) => onChange(gigabytes === fallback ? null : gigabytes)}
        description="Data, WAL, temporary files and logs. A service that uses more is read-only until data is dropped or the service is resized."
      />
    </Card>
  );
}
