/** The actions of an event that changes nothing. */
export const noActions = { stateDelta: {}, artifactDelta: {} };
