() => {
    let smallest = 99; const cut = [];
    for (const svg of document.querySelectorAll('figure svg')) {
        const edge = svg.getBoundingClientRect(), scale = edge.width / svg.viewBox.baseVal.width;
        for (const text of svg.querySelectorAll('text')) {
            smallest = Math.min(smallest, parseFloat(getComputedStyle(text).fontSize) * scale);
            const box = text.getBoundingClientRect();
            if (box.left < edge.left - 1 || box.right > edge.right + 1) cut.push(text.textContent);
        }
    }
    return [smallest, cut];
}
