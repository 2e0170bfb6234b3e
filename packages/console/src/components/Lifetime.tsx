import { NativeSelect } from '@mantine/core';

const DAY_MS = 86_400_000;
const LIFETIMES = {
  '0': 'never',
  '1': 'in a day',
  '7': 'in a week',
  '30': 'in 30 days',
  '90': 'in 90 days',
  '365': 'in a year',
};

/** When a new key expires. */
export function LifetimeInput({
  days,
  onChange,
}: {
  days: string;
  onChange: (days: string) => void;
}) {
  return (
    <NativeSelect
      label="Expires"
      value={days}
      onChange={(event) => onChange(event.currentTarget.value)}
      data={Object.entries(LIFETIMES).map(([value, label]) => ({ value, label }))}
    />
  );
}

/** The field of the API; none: never. */
export const expiryOf = (days: string): { expires_at?: string } =>
  days === '0' ? {} : { expires_at: new Date(Date.now() + Number(days) * DAY_MS).toISOString() };
