/**
 * The regions of Tiger Cloud by their codes in its API.
 * Source: https://www.tigerdata.com/docs/learn/tiger-cloud/regions; codes of Azure begin with az-.
 */
export const TIGER_REGIONS = [
  'ap-northeast-1',
  'ap-south-1',
  'ap-southeast-1',
  'ap-southeast-2',
  'ca-central-1',
  'eu-central-1',
  'eu-central-2',
  'eu-west-1',
  'eu-west-2',
  'sa-east-1',
  'us-east-1',
  'us-east-2',
  'us-west-2',
  'az-eastus2',
  'az-westeurope',
] as const;
