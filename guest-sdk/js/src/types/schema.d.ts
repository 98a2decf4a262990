// JSON, and the types of values that a JSON Schema describes.

/** A JSON value. Integers that a `number` cannot represent exactly are `bigint`s. */
export type Json = null | boolean | number | bigint | string | Json[] | { [key: string]: Json | undefined };

/** A JSON Schema. */
export interface Schema {
  type?: string | string[];
  description?: string;
  enum?: readonly Json[];
  items?: Schema;
  properties?: Record<string, Schema>;
  required?: readonly string[];
  default?: Json;
  [key: string]: unknown;
}

/** A schema under construction, of values of the type `T`. */
export interface SchemaBuilder<T = any> extends Schema {
  /** Makes the property optional. */
  optional(): SchemaBuilder<T | undefined>;
  /** Makes the property optional, with a default value. */
  default: ((value: T) => SchemaBuilder<T>) & Json;
}

/** The type of the values of a schema; `any` for one that is not made by `s`. */
export type TypeOf<S> = S extends SchemaBuilder<infer T> ? T : any;

/** Builds schemas: `s.object({ sides: s.integer("Number of sides").default(6) })`. */
export const s: {
  string(description?: string): SchemaBuilder<string>;
  number(description?: string): SchemaBuilder<number>;
  integer(description?: string): SchemaBuilder<number>;
  boolean(description?: string): SchemaBuilder<boolean>;
  any(description?: string): SchemaBuilder<any>;
  oneOf<const T extends string | number>(values: readonly T[], description?: string): SchemaBuilder<T>;
  array<S extends Schema>(items: S, description?: string): SchemaBuilder<TypeOf<S>[]>;
  object<P extends Record<string, Schema>>(properties: P, description?: string): SchemaBuilder<{ [K in keyof P]: TypeOf<P[K]> }>;
};
