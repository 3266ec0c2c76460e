// Checks the resources on standard input against the models of their operators; prints one problem a line.
import * as keda from '@kubernetes-models/keda/keda.sh/v1alpha1';
import * as prometheus from '@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1';
import { readFileSync } from 'node:fs';

for (const resource of JSON.parse(readFileSync(0, 'utf8'))) {
  const model = { ...prometheus, ...(keda.default ?? keda) }[resource.kind];
  try {
    new model(resource).validate();
  } catch (error) {
    console.log(`${resource.kind} ${resource.metadata.name}: ${error.message}`);
  }
}
