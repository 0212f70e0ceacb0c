// Prints where a value of the project beside this file has the type any: a name that is declared, what a function returns,
// or a cast. Of a library's own any (what JSON.parse returns) something must be said before it has a name.
import ts from "typescript";

const { config } = ts.readConfigFile("tsconfig.json", ts.sys.readFile);
const { fileNames, options } = ts.parseJsonConfigFileContent(config, ts.sys, ".");
const program = ts.createProgram(fileNames, options);
const checker = program.getTypeChecker();
const isAny = (node) => Boolean(checker.getTypeAtLocation(node).flags & ts.TypeFlags.Any);
const returnsAny = (node) => {
  const signature = ts.isFunctionLike(node) && checker.getSignatureFromDeclaration(node);
  return Boolean(signature && checker.getReturnTypeOfSignature(signature).flags & ts.TypeFlags.Any);
};
const isNamed = (node) => (ts.isVariableDeclaration(node) || ts.isParameter(node) || ts.isBindingElement(node)) && ts.isIdentifier(node.name);
const isCast = (node) => ts.isParenthesizedExpression(node) && Boolean(ts.getJSDocType(node));

for (const file of program.getSourceFiles().filter(({ fileName }) => fileNames.includes(fileName))) {
  const visit = (node) => {
    if (((isNamed(node) || isCast(node)) && isAny(node)) || returnsAny(node)) {
      const { line } = file.getLineAndCharacterOfPosition(node.getStart());
      console.log(`${file.fileName}:${line + 1}: ${node.getText().split("\n")[0]}`);
    }
    ts.forEachChild(node, visit);
  };
  visit(file);
}
