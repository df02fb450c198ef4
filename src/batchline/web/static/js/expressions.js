// Vega's expressions as functions: each is read once, when its chart is drawn. The page's security policy forbids eval,
// and Vega's interpreter, which does without, reads the tree anew for each value of each point. What is not known here
// goes to that interpreter.

import { expressionInterpreter } from "../vendor/vega-interpreter.js";

const BINARY = {
  "+": (a, b) => a + b, "-": (a, b) => a - b, "*": (a, b) => a * b, "/": (a, b) => a / b, "%": (a, b) => a % b,
  "<": (a, b) => a < b, "<=": (a, b) => a <= b, ">": (a, b) => a > b, ">=": (a, b) => a >= b,
  "==": (a, b) => a == b, "!=": (a, b) => a != b, "===": (a, b) => a === b, "!==": (a, b) => a !== b,
};
const UNARY = { "+": (a) => +a, "-": (a) => -a, "!": (a) => !a };
const MATHS = ["abs", "ceil", "exp", "floor", "log", "max", "min", "pow", "round", "sqrt"];
const FUNCTIONS = { ...Object.fromEntries(MATHS.map((name) => [name, Math[name]])), isNaN: Number.isNaN, isFinite: Number.isFinite };

class Unknown extends Error {}

// Each gives a function of the datum, the parameters by name, and the item that is encoded.
const READ = {
  Literal: (node) => {
    if (node.regex) throw new Unknown();
    return () => node.value;
  },
  Identifier: ({ name }) => {
    if (name === "datum") return (datum) => datum;
    if (name === "item") return (datum, given, item) => item;
    if (name === "event" || name in Math || name === "NaN") throw new Unknown();
    return (datum, given) => given[`$${name}`];
  },
  MemberExpression: ({ object, property, computed }, functions) => {
    const owner = read(object, functions);
    const name = computed ? read(property, functions) : () => property.name;
    return (...at) => owner(...at)[name(...at)];
  },
  UnaryExpression: ({ operator, argument }, functions) => {
    const apply = known(UNARY, operator);
    const value = read(argument, functions);
    return (...at) => apply(value(...at));
  },
  BinaryExpression: ({ operator, left, right }, functions) => {
    const apply = known(BINARY, operator);
    const [a, b] = [read(left, functions), read(right, functions)];
    return (...at) => apply(a(...at), b(...at));
  },
  LogicalExpression: ({ operator, left, right }, functions) => {
    const [a, b] = [read(left, functions), read(right, functions)];
    return operator === "&&" ? (...at) => a(...at) && b(...at) : (...at) => a(...at) || b(...at);
  },
  ConditionalExpression: ({ test, consequent, alternate }, functions) => choice([test, consequent, alternate], functions),
  ArrayExpression: ({ elements }, functions) => {
    const values = elements.map((element) => read(element, functions));
    return (...at) => values.map((value) => value(...at));
  },
  CallExpression: ({ callee, arguments: given }, functions) => {
    const name = callee.name.replace(/^_/, "");
    if (name === "if") return choice(given, functions);
    const apply = functions[name] ?? known(FUNCTIONS, name);
    const values = given.map((value) => read(value, functions));
    return (...at) => apply.apply(functions, values.map((value) => value(...at)));
  },
};

function known(table, name) {
  if (!Object.hasOwn(table, name)) throw new Unknown();
  return table[name];
}

function read(node, functions) {
  return known(READ, node.type)(node, functions);
}

function choice(nodes, functions) {
  const [test, yes, no] = nodes.map((node) => read(node, functions));
  return (...at) => (test(...at) ? yes(...at) : no(...at));
}

function or(unread, made) {
  try {
    return made();
  } catch (error) {
    if (error instanceof Unknown) return unread();
    throw error;
  }
}

// What has two ends, or a middle, has its place and its size from these.
function ends(channels, ordered) {
  return [["x", "x2", "xc", "width"], ["y", "y2", "yc", "height"]].flatMap(([start, end, middle, size]) => {
    const steps = [];
    if (channels[end] && channels[start]) {
      steps.push((item) => {
        if (ordered && item[start] > item[end]) [item[start], item[end]] = [item[end], item[start]];
        item[size] = item[end] - item[start];
      });
    } else if (channels[end]) steps.push((item) => { item[start] = item[end] - (item[size] || 0); });
    if (channels[middle]) steps.push((item) => { item[start] = item[middle] - (item[size] || 0) / 2; });
    return steps;
  });
}

export const expressions = {
  ...expressionInterpreter,
  operator: (context, expression) => or(() => expressionInterpreter.operator(context, expression), () => {
    const value = read(expression.ast, context.functions);
    return (given) => value(undefined, given);
  }),
  parameter: (context, expression) => or(() => expressionInterpreter.parameter(context, expression), () => {
    const value = read(expression.ast, context.functions);
    return (datum, given) => value(datum, given);
  }),
  encode: (context, encode) => or(() => expressionInterpreter.encode(context, encode), () => {
    const { marktype, channels } = encode;
    const values = Object.entries(channels).map(([name, { ast }]) => [name, read(ast, context.functions)]);
    const adjust = marktype === "rule" ? [] : ends(channels, ["group", "image", "rect"].includes(marktype));
    return (item, given) => {
      let changed = 0;
      for (const [name, value] of values) {
        const now = value(item.datum, given, item);
        if (item[name] !== now) { item[name] = now; changed = 1; }
      }
      for (const step of adjust) step(item);
      return changed;
    };
  }),
};
