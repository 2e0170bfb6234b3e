// @module-tag slow
import { testCrashesIn } from './crash-some.ts';

await testCrashesIn('resets');
