// Files in messages and artifacts.

import type { Part } from "../api/types";

/** Pictures that browsers draw without running anything. */
const IMAGES = ["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"];

export function isImage(part: Part): boolean {
  return IMAGES.includes(part.inlineData?.mimeType?.split(";")[0]?.toLowerCase() ?? "");
}

function base64(data: string): string {
  return data.replaceAll("-", "+").replaceAll("_", "/");
}

/** Returns a URL of the content. Files other than pictures get a media type that browsers only save. */
export function fileUrl(part: Part): string | undefined {
  const data = part.inlineData?.data;
  if (data === undefined) return undefined;
  const type = isImage(part) ? part.inlineData?.mimeType : "application/octet-stream";
  return `data:${type};base64,${base64(data)}`;
}

export function fileName(part: Part): string {
  return part.inlineData?.displayName || part.inlineData?.mimeType || part.fileData?.fileUri || "file";
}

/** Returns the content as text if it has a type of text. */
export function fileText(part: Part): string | undefined {
  if (part.text !== undefined) return part.text;
  const type = part.inlineData?.mimeType?.toLowerCase() ?? "";
  if (!part.inlineData || !/^text\/|[/+](json|xml|yaml)\b/.test(type)) return undefined;
  try {
    const bytes = Uint8Array.from(atob(base64(part.inlineData.data)), (char) => char.charCodeAt(0));
    return new TextDecoder().decode(bytes);
  } catch {
    return undefined;
  }
}

/** Returns bytes as base64. */
export function encodeBase64(bytes: Uint8Array): string {
  let text = "";
  const CHUNK = 0x8000;
  for (let start = 0; start < bytes.length; start += CHUNK) {
    text += String.fromCharCode(...bytes.subarray(start, start + CHUNK));
  }
  return btoa(text);
}
