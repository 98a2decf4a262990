// The agents of an app as a tree, laid out from left to right.

import type { Agent, App } from "../api/types";

export interface TreeNode {
  agent: Agent;
  x: number;
  y: number;
  /** The row of the parent, if it has one. */
  parent?: TreeNode;
  depth: number;
}

export const NODE = { width: 208, gapX: 56, gapY: 20 };

/** Returns the height of a node: a line for its name, one for its model and one for each pair of tools. */
export function nodeHeight(agent: Agent): number {
  return 52 + (agent.model ? 18 : 0) + (agent.tools?.length ?? 0) * 18;
}

/** Lays out the agents, the root first. An agent that is listed twice is placed once. */
export function layOut(app: App): { nodes: TreeNode[]; width: number; height: number } {
  const byName = new Map(app.agents.map((agent) => [agent.name, agent]));
  const placed = new Set<string>();
  const nodes: TreeNode[] = [];
  let bottom = 0;
  const addNode = (agent: Agent, depth: number, parent?: TreeNode): TreeNode => {
    placed.add(agent.name);
    const [start, top] = [nodes.length, bottom];
    const node: TreeNode = { agent, depth, parent, x: depth * (NODE.width + NODE.gapX), y: 0 };
    nodes.push(node);
    const children: TreeNode[] = [];
    for (const name of agent.subAgents) {
      const child = byName.get(name);
      if (child && !placed.has(name)) children.push(addNode(child, depth + 1, node));
    }
    const [first, last] = [children[0], children.at(-1)];
    if (first && last) {
      const middle = (first.y + last.y + nodeHeight(last.agent)) / 2;
      node.y = middle - nodeHeight(agent) / 2;
      // A node that is higher than its children together would overlap the nodes above them.
      const shift = Math.max(0, top - node.y);
      for (const moved of nodes.slice(start)) moved.y += shift;
      bottom += shift;
      bottom = Math.max(bottom, node.y + nodeHeight(agent) + NODE.gapY);
    } else {
      node.y = bottom;
      bottom += nodeHeight(agent) + NODE.gapY;
    }
    return node;
  };
  const root = byName.get(app.rootAgentName) ?? app.agents[0];
  if (root) addNode(root, 0);
  const depth = Math.max(0, ...nodes.map((node) => node.depth));
  return { nodes, width: (depth + 1) * (NODE.width + NODE.gapX) - NODE.gapX, height: Math.max(0, bottom - NODE.gapY) };
}
