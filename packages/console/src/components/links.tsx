import { Button, type ButtonProps } from '@mantine/core';
import { createLink } from '@tanstack/react-router';
import type { AnchorHTMLAttributes, Ref } from 'react';

type AnchorProps = ButtonProps &
  Omit<AnchorHTMLAttributes<HTMLAnchorElement>, keyof ButtonProps> & {
    ref?: Ref<HTMLAnchorElement>;
  };

const AnchorButton = (props: AnchorProps) => <Button component="a" {...props} />;

/** A link with the appearance of a button. */
export const ButtonLink = createLink(AnchorButton);
