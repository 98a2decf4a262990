// Builder of JSON Schemas, and validation of values.

/** A JSON Schema with methods that return a changed copy: `s.integer("Number of sides").default(6)`. */
class Schema {
  constructor(schema, optional = false) {
    Object.assign(this, schema);
    Object.defineProperty(this, "isOptional", { value: optional });
  }

  /** Makes the property optional. */
  optional() {
    return new Schema(this, true);
  }

  /** Makes the property optional, with a default value. */
  default(value) {
    return new Schema({ ...this, default: value }, true);
  }
}

const builder = (type) => (description) => new Schema(description ? { type, description } : { type });

/** Builds schemas. The description is for models. */
export const s = {
  string: builder("string"),
  number: builder("number"),
  integer: builder("integer"),
  boolean: builder("boolean"),
  /** Any JSON value. */
  any: (description) => new Schema(description ? { description } : {}),
  /** One of these values. */
  oneOf: (values, description) => {
    const types = new Set(values.map((value) => typeof value));
    const [type] = types;
    return new Schema({ ...(types.size === 1 && { type }), enum: values, ...(description && { description }) });
  },
  array: (items, description) => new Schema({ type: "array", items, ...(description && { description }) }),
  /** An object; its properties are required unless they are optional or have a default. */
  object: (properties, description) => {
    for (const [name, property] of Object.entries(properties)) checkSchema(`the property \`${name}\``, property);
    const required = Object.keys(properties).filter((name) => !properties[name].isOptional);
    return new Schema({ type: "object", properties, ...(required.length && { required }), ...(description && { description }) });
  },
};

/** The keywords whose values are schemas. */
const APPLICATORS = ["items", "contains", "additionalProperties", "propertyNames", "not", "if", "then", "else"];

/** Returns true for the properties of an object in the place of its schema. */
function isProperties(schema) {
  const entries = Object.entries(schema);
  return entries.length > 0 && entries.every(([key, value]) => value instanceof Schema && !APPLICATORS.includes(key));
}

/** Throws if a value is no JSON Schema. */
export function checkSchema(what, schema) {
  if (typeof schema?.safeParse === "function") throw new TypeError(`${what} is a JSON Schema; for a schema of Zod, write z.toJSONSchema(schema)`);
  const isObject = typeof schema === "object" && schema !== null && !Array.isArray(schema);
  if (!isObject || isProperties(schema)) throw new TypeError(`${what} is a JSON Schema, such as s.object({…})`);
}

/** Returns the first violation of a schema, or `undefined` if the value is valid. */
export function check(schema, value, what) {
  if (schema.enum && !schema.enum.includes(value)) {
    return `${what} must be one of ${schema.enum.map((item) => JSON.stringify(item)).join(", ")}`;
  }
  if (schema.type && ![schema.type].flat().some((type) => isOfType(type, value))) {
    return `${what} must be ${[schema.type].flat().map((type) => NAMES[type] ?? type).join(" or ")}`;
  }
  if (Array.isArray(value) && schema.items) {
    return firstError(value.map((item, index) => () => check(schema.items, item, `${what}[${index}]`)));
  }
  if (isOfType("object", value) && schema.properties) {
    const missing = (schema.required ?? []).find((name) => !has(value, name));
    if (missing) return `${what} has no \`${missing}\``;
    const present = Object.keys(schema.properties).filter((name) => isPresent(schema, value, name));
    return firstError(present.map((name) => () => check(schema.properties[name], value[name], `${what}.${name}`)));
  }
  return undefined;
}

/** Returns true if an object itself has a property: all inherit some, such as `constructor`. */
const has = (value, name) => Object.hasOwn(value, name) && value[name] !== undefined;

/** Returns false for a property that is omitted. Models also write `null` for one that is optional. */
function isPresent(schema, value, name) {
  if (!has(value, name)) return false;
  return value[name] !== null || (schema.required ?? []).includes(name) || !check(schema.properties[name], null, name);
}

/** Returns a value with the defaults of its schema, also in the objects and arrays that it has. */
export function withDefaults(schema, value) {
  if (Array.isArray(value)) return schema?.items ? value.map((item) => withDefaults(schema.items, item)) : value;
  if (!isOfType("object", value)) return value;
  const filled = { ...value };
  for (const [name, property] of Object.entries(schema?.properties ?? {})) {
    if (isPresent(schema, value, name)) filled[name] = withDefaults(property, filled[name]);
    // Schemas have a method of this name as well. A copy, since the code may change its arguments.
    else if (Object.hasOwn(property, "default")) filled[name] = structuredClone(property.default);
    else delete filled[name];
  }
  return filled;
}

const NAMES = {
  string: "a string", number: "a number", integer: "an integer", boolean: "a boolean", array: "an array", object: "an object",
  null: "null",
};

function isOfType(type, value) {
  switch (type) {
    case "string": return typeof value === "string";
    case "number": return typeof value === "number" || typeof value === "bigint";
    case "integer": return Number.isInteger(value) || typeof value === "bigint";
    case "boolean": return typeof value === "boolean";
    case "array": return Array.isArray(value);
    case "object": return typeof value === "object" && value !== null && !Array.isArray(value);
    case "null": return value === null;
    default: return true;
  }
}

function firstError(checks) {
  for (const check of checks) {
    const error = check();
    if (error) return error;
  }
  return undefined;
}
