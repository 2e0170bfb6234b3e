import { NumberInput, type NumberInputProps } from '@mantine/core';
import { STORAGE_GB } from '@howdah/contract/sizes';

/** Why a storage quota cannot be sent; null: it can. */
export function whyNoStorage(gigabytes: number): string | null {
  const { min, max } = STORAGE_GB;
  return Number.isInteger(gigabytes) && gigabytes >= min && gigabytes <= max
    ? null
    : `storage is ${min} to ${max} GB`;
}

/** The storage quota of a service, in gigabytes. */
export function StorageInput({
  value,
  onChange,
  ...rest
}: Omit<NumberInputProps, 'value' | 'onChange'> & {
  value: number;
  onChange: (gigabytes: number) => void;
}) {
  return (
    <NumberInput
      {...rest}
      min={STORAGE_GB.min}
      max={STORAGE_GB.max}
      allowDecimal={false}
      suffix=" GB"
      styles={{ wrapper: { maxWidth: 130 } }}
      value={value}
      onChange={(gigabytes) => onChange(Number(gigabytes))}
    />
  );
}
