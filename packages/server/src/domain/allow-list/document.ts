/** Allow lists as the API answers them. */
import type { AllowList } from '@howdah/contract';

type AllowListColumns = {
  id: string;
  project_id: string;
  description: string;
  cidr_blocks: string[];
  created: Date;
};

export function allowListDocument(row: AllowListColumns): AllowList {
  return {
    allow_list_id: row.id,
    project_id: row.project_id,
    description: row.description,
    cidr_blocks: row.cidr_blocks,
    created_at: row.created.toISOString(),
  };
}
