// JSON Schemas in a few words, and the check of values by them.

/** A JSON Schema that can be extended: `s.integer("How many").default(6)`. */
class Schema {
  constructor(schema, optional = false) {
    Object.assign(this, schema);
    Object.defineProperty(this, "isOptional", { value: optional });
  }

  /** It need not be given. */
  optional() {
    return new Schema(this, true);
  }

  /** It need not be given; this is what it is then. */
  default(value) {
    return new Schema({ ...this, default: value }, true);
  }
}

const of = (type) => (description) => new Schema(description ? { type, description } : { type });

/** Builds schemas. Each takes a description, which models read. */
export const s = {
  string: of("string"),
  number: of("number"),
  integer: of("integer"),
  boolean: of("boolean"),
  /** Any JSON value. */
  any: (description) => new Schema(description ? { description } : {}),
  /** One of these values. */
  oneOf: (values, description) => new Schema({ type: typeof values[0], enum: values, ...(description && { description }) }),
  array: (items, description) => new Schema({ type: "array", items, ...(description && { description }) }),
  /** An object; its properties are required unless they are optional or have a default. */
  object: (properties, description) => {
    const required = Object.keys(properties).filter((name) => !properties[name].isOptional);
    return new Schema({ type: "object", properties, ...(required.length && { required }), ...(description && { description }) });
  },
};

/** What is wrong with a value, or nothing. */
export function check(schema, value, what) {
  if (schema.enum && !schema.enum.includes(value)) {
    return `${what} must be one of ${schema.enum.map((each) => JSON.stringify(each)).join(", ")}`;
  }
  if (schema.type && ![schema.type].flat().some((type) => fits(type, value))) {
    return `${what} must be ${[schema.type].flat().map((type) => NAMES[type] ?? type).join(" or ")}`;
  }
  if (Array.isArray(value) && schema.items) {
    return first(value.map((each, at) => () => check(schema.items, each, `${what}[${at}]`)));
  }
  if (fits("object", value) && schema.properties) {
    const missing = (schema.required ?? []).find((name) => value[name] === undefined);
    if (missing) return `${what} lacks ${missing}`;
    const given = Object.keys(schema.properties).filter((name) => value[name] !== undefined);
    return first(given.map((name) => () => check(schema.properties[name], value[name], `${what}.${name}`)));
  }
  return undefined;
}

/** A value with the defaults of its schema. */
export function withDefaults(schema, value) {
  const filled = { ...value };
  for (const [name, each] of Object.entries(schema?.properties ?? {})) {
    if (filled[name] === undefined && each.default !== undefined) filled[name] = each.default;
  }
  return filled;
}

const NAMES = {
  string: "a text", number: "a number", integer: "a whole number", boolean: "true or false", array: "a list", object: "an object",
  null: "null",
};

function fits(type, value) {
  switch (type) {
    case "string": return typeof value === "string";
    case "number": return typeof value === "number";
    case "integer": return Number.isInteger(value);
    case "boolean": return typeof value === "boolean";
    case "array": return Array.isArray(value);
    case "object": return typeof value === "object" && value !== null && !Array.isArray(value);
    case "null": return value === null;
    default: return true;
  }
}

function first(checks) {
  for (const each of checks) {
    const wrong = each();
    if (wrong) return wrong;
  }
  return undefined;
}
