/** The mark: a back, and the posts of the seat on it. */
export function Logo({ size = 28 }: { size?: number }) {
  return (
    <svg width={size} height={size} viewBox="0 0 32 32" aria-hidden>
      <rect width="32" height="32" rx="8" fill="#0f766e" />
      <path
        d="M7 21c0-7 4-11 9-11s9 4 9 11"
        fill="none"
        stroke="#fff"
        strokeWidth="3"
        strokeLinecap="round"
      />
      <path
        d="M11 22v-4M16 22v-6M21 22v-4"
        stroke="#fbbf24"
        strokeWidth="3"
        strokeLinecap="round"
      />
    </svg>
  );
}
