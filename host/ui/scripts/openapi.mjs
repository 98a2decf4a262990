// TypeScript of the schemas of an OpenAPI document.

const INDENT = "  ";
const isIdentifier = (name) => /^[A-Za-z_$][\w$]*$/.test(name);
const union = (types) => [...new Set(types)].join(" | ");

function arrayOf(type) {
  return /[|&]/.test(type) ? `(${type})[]` : `${type}[]`;
}

function comment(text, indent) {
  if (!text) return "";
  const lines = text.trim().split("\n").map((line) => line.trim().replaceAll("*/", "* /"));
  if (lines.length === 1) return `${indent}/** ${lines[0]} */\n`;
  return `${indent}/**\n${lines.map((line) => `${indent} *${line && ` ${line}`}\n`).join("")}${indent} */\n`;
}

function objectType(schema, indent) {
  const { properties = {}, required = [], additionalProperties } = schema;
  const inner = indent + INDENT;
  const names = Object.keys(properties);
  if (names.length === 0) {
    return additionalProperties ? `{ [key: string]: ${typeOf(additionalProperties, indent)} }` : "JsonObject";
  }
  const members = names.map((name) => {
    const property = properties[name];
    const isRequired = required.includes(name);
    // The host leaves out keys without a value instead of writing `null`.
    const type = typeOf(property, inner, !isRequired);
    const key = isIdentifier(name) ? name : JSON.stringify(name);
    return `${comment(property.description, inner)}${inner}${key}${isRequired ? "" : "?"}: ${type};\n`;
  });
  return `{\n${members.join("")}${indent}}`;
}

function typeOf(schema, indent = "", isOptional = false) {
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  if ("const" in schema) return JSON.stringify(schema.const);
  if (schema.enum) return union(schema.enum.map((value) => JSON.stringify(value)));
  const choices = schema.oneOf ?? schema.anyOf;
  if (choices) {
    const present = isOptional ? choices.filter((choice) => choice.type !== "null") : choices;
    return union(present.map((choice) => typeOf(choice, indent)));
  }
  if (schema.allOf) {
    const types = schema.allOf.map((part) => typeOf(part, indent));
    return types.map((type) => (type.includes(" | ") ? `(${type})` : type)).join(" & ");
  }
  const types = [schema.type ?? []].flat().filter((type) => !(isOptional && type === "null"));
  if (types.length === 0) return "Json";
  return union(types.map((type) => simpleType(type, schema, indent)));
}

function simpleType(type, schema, indent) {
  switch (type) {
    case "integer":
    case "number":
      return "number";
    case "string":
    case "boolean":
    case "null":
      return type;
    case "array":
      return arrayOf(typeOf(schema.items ?? {}, indent));
    case "object":
      return objectType(schema, indent);
    default:
      throw new Error(`a schema has the type ${type}`);
  }
}

/** Returns a module with a type for each schema, by name. */
export function toTypeScript(document) {
  const schemas = Object.entries(document.components.schemas).sort(([one], [other]) => (one < other ? -1 : 1));
  const types = schemas.map(([name, schema]) => `${comment(schema.description, "")}export type ${name} = ${typeOf(schema)};\n`);
  const head = "// Generated from the schemas of /openapi.json by `cargo xtask ui`.\n\nimport type { Json, JsonObject } from \"./json\";\n";
  return [head, ...types].join("\n");
}
