import { Button, Modal } from '@mantine/core';
import type { ReactNode } from 'react';
import { Code, Notice } from './ui.tsx';

/** Shows a secret once: it cannot be read again. */
export function Secret({
  title,
  value,
  label,
  onClose,
  children,
}: {
  title: string;
  value: string | null;
  label: string;
  onClose: () => void;
  children?: ReactNode;
}) {
  return (
    <Modal
      opened={value !== null}
      onClose={onClose}
      title={title}
      closeOnClickOutside={false}
      closeButtonProps={{ 'aria-label': 'Close' }}
      size="lg"
    >
      <div style={{ display: 'grid', gap: 16 }}>
        <Notice tone="warn">
          <p>It is shown only once. Howdah keeps only a hash of it.</p>
        </Notice>
        <Code value={value ?? ''} label={label} wrap />
        {children}
        <Button onClick={onClose}>I have saved it</Button>
      </div>
    </Modal>
  );
}
