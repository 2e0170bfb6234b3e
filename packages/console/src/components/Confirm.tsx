import { Button, Modal } from '@mantine/core';
import { useDisclosure } from '@mantine/hooks';
import type { ReactNode } from 'react';
import { ActionButton } from './ui.tsx';

/** A button whose action is done once it is confirmed. */
export function Confirm({
  label,
  title,
  'aria-label': longer,
  why,
  pending,
  onConfirm,
  children,
}: {
  label: string;
  title: string;
  /** The button's name where others on the page have the same label. */
  'aria-label'?: string;
  why: string | null;
  pending: boolean;
  onConfirm: () => void;
  children: ReactNode;
}) {
  const [opened, { open, close }] = useDisclosure(false);
  return (
    <>
      <ActionButton
        variant="default"
        size="xs"
        why={why}
        loading={pending}
        onClick={open}
        {...(longer === undefined ? {} : { 'aria-label': longer })}
      >
        {label}
      </ActionButton>
      <Modal
        opened={opened}
        onClose={close}
        title={title}
        closeButtonProps={{ 'aria-label': 'Close' }}
      >
        <div style={{ display: 'grid', gap: 18 }}>
          <p style={{ margin: 0, lineHeight: 1.55 }}>{children}</p>
          <div style={{ display: 'flex', gap: 10, justifyContent: 'flex-end' }}>
            <Button variant="default" onClick={close} data-autofocus>
              Keep it
            </Button>
            <Button
              color="red.9"
              onClick={() => {
                close();
                onConfirm();
              }}
            >
              {label}
            </Button>
          </div>
        </div>
      </Modal>
    </>
  );
}
