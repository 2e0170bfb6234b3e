import { Checkbox, NativeSelect } from '@mantine/core';

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

/** Lifetimes of services that are offered, by their seconds. */
const OF_SERVICES = {
  '3600': 'in an hour',
  '14400': 'in 4 hours',
  '86400': 'in a day',
  '604800': 'in a week',
  '2592000': 'in 30 days',
};

/** `seconds` is empty for a service that does not expire, or that stays as it is. */
export type ServiceLifetime = { seconds: string; purges: boolean };
export const NO_LIFETIME: ServiceLifetime = { seconds: '', purges: false };

/** When a service is deleted by itself. @param otherwise what holds where nothing is chosen */
export function ServiceLifetimeInput({
  value,
  otherwise,
  onChange,
}: {
  value: ServiceLifetime;
  otherwise: string;
  onChange: (value: ServiceLifetime) => void;
}) {
  return (
    <>
      <NativeSelect
        aria-label="Deleted"
        value={value.seconds}
        onChange={(event) => onChange({ ...value, seconds: event.currentTarget.value })}
        data={[
          { value: '', label: otherwise },
          ...Object.entries(OF_SERVICES).map(([seconds, label]) => ({ value: seconds, label })),
        ]}
      />
      <Checkbox
        mt="sm"
        label="It cannot be restored after that"
        disabled={value.seconds === ''}
        checked={value.purges}
        onChange={(event) => onChange({ ...value, purges: event.currentTarget.checked })}
      />
    </>
  );
}

/** How long the services of a key are there at most. */
export function LifetimeBound({
  seconds,
  onChange,
}: {
  seconds: string;
  onChange: (seconds: string) => void;
}) {
  return (
    <NativeSelect
      label="Its services are deleted"
      value={seconds}
      onChange={(event) => onChange(event.currentTarget.value)}
      data={[
        { value: '', label: 'when somebody deletes them' },
        ...Object.entries(OF_SERVICES).map(([value, label]) => ({ value, label })),
      ]}
    />
  );
}

/** The fields of the API. */
export const lifetimeOf = ({ seconds, purges }: ServiceLifetime) =>
  seconds === ''
    ? {}
    : { ttl_seconds: Number(seconds), ...(purges ? { purge_on_expiry: true } : {}) };
