import { NativeSelect } from '@mantine/core';

/** Times after which services fall asleep that are offered, by their seconds. */
const TIMES = {
  '60': 'after a minute without use',
  '300': 'after 5 minutes without use',
  '3600': 'after an hour without use',
  '86400': 'after a day without use',
};

/** When a service falls asleep; `seconds` is empty for never. */
export function SleepInput({
  seconds,
  onChange,
  label,
  otherwise = 'Never falls asleep',
}: {
  seconds: string;
  onChange: (seconds: string) => void;
  label?: string;
  otherwise?: string;
}) {
  return (
    <NativeSelect
      {...(label === undefined ? { 'aria-label': 'Falls asleep' } : { label })}
      value={seconds}
      onChange={(event) => onChange(event.currentTarget.value)}
      data={[
        { value: '', label: otherwise },
        ...Object.entries(TIMES).map(([value, label]) => ({ value, label })),
        // A time that was set by another way.
        ...(seconds === '' || seconds in TIMES
          ? []
          : [{ value: seconds, label: `after ${seconds} seconds without use` }]),
      ]}
    />
  );
}
